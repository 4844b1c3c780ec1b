"""Django settings of tests/packages: those of the tests, with the apps of other packages."""

from tests.settings import *  # noqa: F403
from tests.settings import INSTALLED_APPS as BASE_APPS

INSTALLED_APPS = [
    *BASE_APPS,
    "django_jsonform",
    "djmoney",
    "django_countries",
    "multiselectfield",
    "phonenumber_field",
    "recurrence",
    "taggit",
    "timezone_field",
    "tests.packages",
]
