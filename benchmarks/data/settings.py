"""Settings of the measured data; `benchmarks.data.serve` sets the environment.

With BENCH_PEER=1 they are those of django-mcp-server.
"""

import os

PEER = os.environ.get("BENCH_PEER") == "1"
SECRET_KEY = "measured-on-loopback-only-and-thrown-away"
DEBUG = False
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
ROOT_URLCONF = "mcp_server.urls" if PEER else "benchmarks.data.urls"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "rest_framework",
    "mcp_server" if PEER else "mcp_django",
    "benchmarks.data",
]
MIDDLEWARE: list[str] = []
SESSION_ENGINE = "django.contrib.sessions.backends.signed_cookies"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ["BENCH_DATABASE"],
        "CONN_MAX_AGE": 60,
        "OPTIONS": {"transaction_mode": "IMMEDIATE", "init_command": "PRAGMA journal_mode=WAL;"},
    },
}
MCP = {"AUTH": "none", "SERVERS": {"default": {"NAME": "benchmarks", "VERSION": "1"}}}
REST_FRAMEWORK = {
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_AUTHENTICATION_CLASSES": [],
    "UNAUTHENTICATED_USER": None,
}
DJANGO_MCP_GLOBAL_SERVER_CONFIG = {"name": "benchmarks", "stateless": True}
