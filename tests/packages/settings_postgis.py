"""Django settings of tests/packages on PostGIS."""

from tests.packages.settings import *  # noqa: F403
from tests.support import services

DATABASES = {"default": {**services.postgres_database(), "ENGINE": "django.contrib.gis.db.backends.postgis"}}
