"""Settings of a project that has added the app, and thought no further."""

SECRET_KEY = "for-tests-only"
DEBUG = False
ALLOWED_HOSTS = ["example.com"]
ROOT_URLCONF = "mcp_django.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes", "mcp_django"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.sqlite3"}}
