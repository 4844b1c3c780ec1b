"""Settings of a site on Wagtail, as its documentation lists them."""

from tests.real_projects.common_settings import *  # noqa: F403
from tests.real_projects.common_settings import DJANGO_MIDDLEWARE

ROOT_URLCONF = "tests.real_projects.wagtail.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
WAGTAIL_SITE_NAME = "Site"
WAGTAILADMIN_BASE_URL = "http://testserver"
INSTALLED_APPS = [
    "tests.real_projects.wagtail",
    "wagtail.contrib.forms",
    "wagtail.contrib.redirects",
    "wagtail.contrib.settings",
    "wagtail.api.v2",
    "wagtail.embeds",
    "wagtail.sites",
    "wagtail.users",
    "wagtail.snippets",
    "wagtail.documents",
    "wagtail.images",
    "wagtail.search",
    "wagtail.admin",
    "wagtail",
    "modelcluster",
    "taggit",
    "rest_framework",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "channels",
    "mcp_django",
]
MIDDLEWARE = [*DJANGO_MIDDLEWARE, "wagtail.contrib.redirects.middleware.RedirectMiddleware"]
MCP = {"AUTH": "none", "SERVERS": {"default": {}, "views": {}}}
