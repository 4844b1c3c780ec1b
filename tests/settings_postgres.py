"""Django settings of the tests on PostgreSQL, in a database of their own beside the one of `services.POSTGRES_URL`."""

from tests.settings import *  # noqa: F403
from tests.support import services

DATABASES = {"default": services.postgres_database()}
