"""Settings of the demo project: safe on loopback as they are, and adjustable through the environment.

* `DJANGO_DEBUG`: 1 (default) or 0
* `SECRET_KEY`: otherwise a key made for this checkout and kept in DEMO_DIR
* `ALLOWED_HOSTS`: comma-separated; otherwise loopback names only
* `DATABASE_URL`: postgres://user:password@host/name; otherwise SQLite in DEMO_DIR
* `REDIS_URL`: redis://host:port/0, needed as soon as several processes serve; otherwise in memory
* `DEMO_DIR`: where the checkout keeps the files that it creates; otherwise var/
* `DEMO_AUTH`: `oauth` protects the demo with an authorization server of its own; otherwise `DJANGO_DEBUG` decides
* `DEMO_ORIGIN`: where clients reach it, with `DEMO_AUTH=oauth`; otherwise http://127.0.0.1:8000
"""

import os
from pathlib import Path
from typing import Any

from mcp_django.contrib.oauth import oauth2_provider_settings
from project import environment

BASE_DIR = Path(__file__).resolve().parent.parent
DEMO_DIR = environment.private_directory(BASE_DIR / "var")

DEBUG = environment.flag("DJANGO_DEBUG", default=True)
SECRET_KEY = os.environ.get("SECRET_KEY") or environment.secret(DEMO_DIR / "secret_key")
ALLOWED_HOSTS = environment.words("ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])
DEMO_AUTH = environment.choice("DEMO_AUTH", ("", "oauth"))
DEMO_ORIGIN = os.environ.get("DEMO_ORIGIN") or "http://127.0.0.1:8000"

INSTALLED_APPS = [
    "daphne",  # before staticfiles: makes `runserver` serve ASGI
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.humanize",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "mcp_django",
    "mcp_django.contrib.apps",
    "mcp_django.contrib.control_room",
    "mcp_django.contrib.playground",
    "mcp_django.contrib.tasks",
    "project.airports",
]
if DEMO_AUTH == "oauth":
    INSTALLED_APPS += ["oauth2_provider", "mcp_django.contrib.oauth"]
    OAUTH2_PROVIDER = oauth2_provider_settings(issuer=DEMO_ORIGIN)

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "project.urls"
ASGI_APPLICATION = "project.asgi.application"
WSGI_APPLICATION = "project.wsgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        # The project's own pages. Searched before the apps, so a file mcp_django/… here overrides one that is shipped.
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

DATABASES = {"default": environment.database(os.environ.get("DATABASE_URL", ""), default=DEMO_DIR / "db.sqlite3")}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
CHANNEL_LAYERS = environment.channel_layers(os.environ.get("REDIS_URL", ""))

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
STATIC_URL = "static/"
LOGIN_URL = "login" if DEMO_AUTH == "oauth" else "admin:login"

if DEMO_AUTH == "oauth":
    auth: str | list[str] = ["oauth", "token"]
else:
    auth = "none" if DEBUG else "token"

# The keys of mcp_django whose values differ from the defaults. All keys are in docs/reference/settings.md.
MCP: dict[str, Any] = {
    # Callers: with "none" the local principal, from a loopback address only; with "token" bearers of personal access
    # tokens (admin, or `manage.py mcp_createtoken`); with "oauth" those of the authorization server.
    "AUTH": auth,
    # Rights that users delegate to clients. Tools name the scopes that they need (`scopes=`).
    "SCOPES": {
        "airports:read": "Look up airports, countries and your trips",
        "airports:plan": "Plan trips and save them",
    },
    # A client that may plan may read.
    "SCOPE_IMPLIES": {"airports:plan": ["airports:read"]},
    # User of the local principal, who owns the planned trips. `manage.py demo` creates it.
    "LOCAL_USER": "demo",
    "SERVERS": {
        "default": {
            "NAME": "airports",
            "VERSION": "1.0",
            "TITLE": "Airports of the world",
            "DESCRIPTION": "28,000 airports, their countries and regions, and trips between them.",
            # Given to the model when it connects.
            "INSTRUCTIONS": (
                "Airports go by IATA or ICAO codes; search_airports finds them. Coordinates are degrees, distances "
                "kilometres, elevations feet. plan_trip asks the user before it saves anything. The tools airport_…, "
                "country_…, region_… and trip_… answer any other question about the rows: …_describe says what they "
                "can be filtered, ordered and summed up by."
            ),
            "TIMEOUT": 60,  # seconds for a handler without a timeout of its own
            # Extensions of the protocol: HTML for the results of tools, and long jobs.
            "EXTENSIONS": ["mcp_django.contrib.apps.Apps", "mcp_django.contrib.tasks.Tasks"],
            # Toolsets and servers within this one, by prefix: the tool of this one is units__convert.
            "MOUNTS": {"units": "project.airports.units.Units"},
            "HEALTHZ": True,  # GET /mcp/healthz for load balancers
            "REQUIRED_SCOPES": ["airports:read"],  # of every client with a token
        },
    },
    "LIMITS": {"BODY": 256 * 1024},  # bytes of a request; these tools take short arguments
    "ALERTS": {"MAIL": []},  # addresses of mails about alerts; "admins" by default
    # With DEBUG, clients see the text of an unexpected exception. Without DEBUG they never do.
    "EXPOSE_INTERNAL_ERRORS": True,
}
