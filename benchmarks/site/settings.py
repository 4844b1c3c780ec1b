"""Settings of the measured project; `benchmarks.serve` sets the environment.

Settings that cost time have their defaults, with two exceptions. Some limits are higher, because one client with many
connections would exceed them. Connections to the database are kept, because calls run on threads that outlive them.
"""

import os

from mcp_django.contrib.oauth import oauth2_provider_settings

SECRET_KEY = "measured-on-loopback-only-and-thrown-away"
DEBUG = False
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
ROOT_URLCONF = "benchmarks.site.urls"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
ORIGIN = "http://127.0.0.1:8766"
AUTH, ISSUER = os.environ.get("BENCH_AUTH", "none"), os.environ.get("BENCH_ISSUER", "")
RECORDS = os.environ.get("BENCH_RECORDS", "none")
OAUTH = ["oauth2_provider", "mcp_django.contrib.oauth"] if AUTH == "oauth" else []
OAUTH2_PROVIDER = oauth2_provider_settings(issuer=ORIGIN) if OAUTH else {}
INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    *(["django.contrib.sessions"] if AUTH == "session" else []),
    *OAUTH,
    "mcp_django",
    *(["django.contrib.admin", "mcp_django.contrib.control_room"] if RECORDS != "none" else []),
    *(["mcp_django.contrib.tasks"] if os.environ.get("BENCH_TASKS") else []),
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
# Sessions are rows only if sessions are measured, because reading a row takes a statement.
SESSION_ENGINE = f"django.contrib.sessions.backends.{'db' if AUTH == 'session' else 'signed_cookies'}"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ["BENCH_DATABASE"],
        "CONN_MAX_AGE": 60,
        "OPTIONS": {"transaction_mode": "IMMEDIATE", "init_command": "PRAGMA journal_mode=WAL;"},
    },
}
MCP = {
    "AUTH": AUTH,
    "ORIGIN": ORIGIN,
    "SCOPES": {"bench:add": "Add numbers"},
    "SESSION_SCOPES": ["bench:add"],
    **({"ISSUERS": [{"ISSUER": ISSUER, "JWKS_URI": ISSUER + "/keys"}]} if ISSUER else {}),
    **({"RECORD": {"CALLS": "all"}} if RECORDS == "all" else {}),
    **({"TOKEN_CACHE_SECONDS": 0} if os.environ.get("BENCH_UNCACHED") else {}),
    # The server has two paths, the ASGI door's and the view's, so the resource of its tokens is set.
    "SERVERS": {
        "default": {
            "NAME": "benchmarks",
            "VERSION": "1",
            "PAGE_SIZE": 1000,
            "RESOURCE": f"{ORIGIN}/mcp",
            "EXTENSIONS": ["mcp_django.contrib.tasks.Tasks"] if os.environ.get("BENCH_TASKS") else [],
        }
    },
    "LIMITS": {"SESSIONS_PER_OWNER": 5000, "IN_FLIGHT": 64, "MAX_STREAMS": 5000, "MAX_STREAMS_PER_OWNER": 5000},
}
if os.environ.get("BENCH_LOG"):
    LOGGING = {
        "version": 1,
        "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
        "handlers": {"file": {"class": "logging.FileHandler", "filename": os.devnull, "formatter": "line"}},
        "loggers": {"mcp_django.calls": {"level": "INFO", "handlers": ["file"], "propagate": False}},
    }
