"""Django settings of tests/packages: those of the tests, with the apps of other packages."""

from tests.settings import *  # noqa: F403
from tests.settings import INSTALLED_APPS as BASE_APPS

INSTALLED_APPS = [
    *BASE_APPS,
    "django_countries",
    "django_jsonform",
    "djmoney",
    "guardian",
    "modelcluster",
    "mptt",
    "multiselectfield",
    "phonenumber_field",
    "recurrence",
    "taggit",
    "timezone_field",
    "auditlog",
    "reversion",
    "simple_history",
    "treebeard",
    "wagtail",
    "wagtail.admin",
    "wagtail.documents",
    "wagtail.images",
    "wagtail.search",
    "wagtail.sites",
    "wagtail.users",
    "django.contrib.postgres",
    "tests.packages",
]

WAGTAIL_SITE_NAME = "Site"
WAGTAILADMIN_BASE_URL = "http://testserver"
ANONYMOUS_USER_NAME = None
"""Of django-guardian: callers without an account have no object permissions."""
