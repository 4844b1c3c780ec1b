"""Settings of the project: the apps of the recipe."""

import os

from tests.support import services

SECRET_KEY = "for-tests-only"
USE_TZ = True
DATABASES = {
    "default": {
        **services.postgres_database(),
        "ENGINE": "django_tenants.postgresql_backend",
        "NAME": os.environ["TENANTS_DATABASE"],
    }
}
DATABASE_ROUTERS = ["django_tenants.routers.TenantSyncRouter"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
ROOT_URLCONF = "tests.packages.tenants.urls"
SHARED_APPS = [
    "django_tenants",
    "tests.packages.tenants.customers",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "channels",
    "mcp_django",
]
TENANT_APPS = ["django.contrib.contenttypes", "tests.packages.tenants.orders"]
INSTALLED_APPS = [*SHARED_APPS, *[app for app in TENANT_APPS if app not in SHARED_APPS]]
TENANT_MODEL = "customers.Customer"
TENANT_DOMAIN_MODEL = "customers.Domain"
MCP = {"AUTH": "none"}
