"""Django settings of tests/packages on PostgreSQL."""

from tests.packages.settings import *  # noqa: F403
from tests.support import services

DATABASES = {"default": services.postgres_database()}
