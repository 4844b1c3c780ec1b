"""Settings of the measured project; `benchmarks.serve` fills the environment.

What costs time is left at its default, but for two limits that one client with many connections meets, and for
connections to the database, which are kept: calls run on lanes, threads that outlive them.
"""

import os

SECRET_KEY = "measured-on-loopback-only-and-thrown-away"
DEBUG = False
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
ROOT_URLCONF = "benchmarks.site.urls"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "mcp_django",
    "benchmarks.site",
]
STOCK_MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
MIDDLEWARE = STOCK_MIDDLEWARE if os.environ.get("BENCH_MIDDLEWARE") == "stock" else []
SESSION_ENGINE = "django.contrib.sessions.backends.signed_cookies"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ["BENCH_DATABASE"],
        "CONN_MAX_AGE": 60,
        "OPTIONS": {"transaction_mode": "IMMEDIATE", "init_command": "PRAGMA journal_mode=WAL;"},
    },
}
MCP = {
    "AUTH": os.environ.get("BENCH_AUTH", "none"),
    "SERVERS": {"default": {"NAME": "benchmarks", "VERSION": "1", "PAGE_SIZE": 1000}},
    "LIMITS": {"SESSIONS_PER_OWNER": 5000, "IN_FLIGHT": 64, "LISTENS": 5000, "LISTENS_PER_OWNER": 5000},
}
if os.environ.get("BENCH_LOG"):
    LOGGING = {
        "version": 1,
        "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
        "handlers": {"file": {"class": "logging.FileHandler", "filename": os.devnull, "formatter": "line"}},
        "loggers": {"mcp_django.calls": {"level": "INFO", "handlers": ["file"], "propagate": False}},
    }
