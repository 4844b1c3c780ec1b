"""Settings of the demo project: safe on loopback as they are, and adjustable through the environment.

* `DJANGO_DEBUG`: 1 (default) or 0
* `SECRET_KEY`: otherwise a key made for this checkout and kept in DEMO_DIR
* `ALLOWED_HOSTS`: comma-separated; otherwise loopback names only
* `DATABASE_URL`: postgres://user:password@host/name; otherwise SQLite in DEMO_DIR
* `REDIS_URL`: redis://host:port/0, needed as soon as several processes serve; otherwise in memory
* `DEMO_DIR`: where the checkout keeps what it makes for itself; otherwise var/
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

# Every key of mcp_django once; those that say so keep their default and could be left out.
MCP: dict[str, Any] = {
    # Who may call. "none": the local principal, from a loopback address only. "token": bearers of personal access
    # tokens (admin, or `manage.py mcp_createtoken`). "oauth": what clients got from the authorization server. Others
    # are in the reference, and a dotted path names a verifier of your own. A list of these takes any of them.
    "AUTH": ["oauth", "token"] if DEMO_AUTH == "oauth" else "none" if DEBUG else "token",
    # Where clients reach the project. None: where the issuer is.
    "ORIGIN": None,  # default
    # What users delegate to clients. Tools name what they take (`scopes=`).
    "SCOPES": {
        "airports:read": "Look up airports, countries and your trips",
        "airports:plan": "Plan trips and save them",
    },
    # A client that may plan may read.
    "SCOPE_IMPLIES": {"airports:plan": ["airports:read"]},
    "ISSUERS": [],  # default: identity providers whose tokens are taken too
    "SESSION_SCOPES": [],  # default: scopes of this site's own pages, for "session" in AUTH
    "RATES": {},  # default: how often something may be done
    "TOKEN_CACHE": None,  # default: each process verifies tokens for itself
    # The user the local principal acts as: it owns the trips that are planned. `manage.py demo` makes it.
    "LOCAL_USER": "demo",
    "CLIENTS": {},  # default: servers that this project uses
    # The page that shows apps without a chat. Without a permission it exists with DEBUG only, for staff.
    "APPS_PREVIEW": {"PERMISSION": None},  # default
    "SERVERS": {
        # "default" serves what names no server. Another alias serves what is declared with `server="alias"`.
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
            "WEBSITE_URL": None,  # default
            "ICONS": [],  # default: none; URLs, or dicts of src, mimeType, sizes and theme
            "PATH": "mcp",  # default: below the place of mcp_django.urls
            "TRANSPORTS": ["http", "websocket", "sse", "stdio"],  # default: the ways in
            "ERAS": ["handshake", "stateless"],  # default: clients of every protocol revision
            "REQUIRE_SESSION": True,  # default: clients of the handshake era get one, to be asked and told in
            "PAGE_SIZE": 1000,  # default: entries of a page of a list
            "TIMEOUT": 60,  # seconds for a handler that names no timeout of its own
            "LOG_LEVEL": "info",  # default: least level of log messages sent to a client that names none
            "CACHE_TTL": 60,  # default: seconds for which clients may keep a list
            "MIDDLEWARE": [],  # default: dotted paths, outermost first
            "AROUND": [],  # default: dotted paths of context managers around handlers, outermost first
            "PROVIDERS": [],  # default: dotted paths of providers of further tools, resources and prompts
            # Dotted paths of extensions of the protocol: HTML for the results of tools, and long jobs.
            "EXTENSIONS": ["mcp_django.contrib.apps.Apps", "mcp_django.contrib.tasks.Tasks"],
            # Toolsets and servers within this one, by prefix: the tool of this one is called units__convert.
            "MOUNTS": {"units": "project.airports.units.Units"},
            "PROXIES": {},  # default: servers in CLIENTS that are passed on to the clients of this one
            "ORM_STYLE": None,  # default: that of all servers, below
            "STORED": True,  # default: the prompts and resources that are written in the admin are served
            "LIFESPAN": None,  # default: dotted path of an async context manager, entered once per process
            "ENABLE_GET": True,  # default: sessions have a stream for what changes, and lost streams can be resumed
            "ALLOW_DELETE": True,  # default: clients may end their sessions
            "HEALTHZ": True,  # GET /mcp/healthz for load balancers
            "REQUIRED_SCOPES": ["airports:read"],  # of every client that has a token
            "RESOURCE": None,  # default: the URL that tokens are made for is that of the endpoint
            "AUTHORIZATION_SERVERS": None,  # default: those whose tokens AUTH takes
            "RESOURCE_METADATA_URL": None,  # default: the well-known place
            "RESOURCE_METADATA": {},  # default: entries added to what clients find there
            "AUTHORIZER": None,  # default: nobody takes rights away from a principal who was verified
            "CAPABILITIES": {},  # default: entries added to the declared capabilities
        },
    },
    "LIMITS": {
        "BODY": 256 * 1024,  # bytes of a request; these tools take short arguments
        "RESULT_BYTES": 4 * 1024 * 1024,  # default: bytes of an answer, with its envelope
        "IN_FLIGHT": 32,  # default: calls running at once, of one session or principal
        "SESSIONS_PER_OWNER": 20,  # default: one more ends the session that was idle longest
        "SESSIONS": 10_000,  # default: of the whole server
        "SESSION_IDLE": 3600,  # default: seconds without a message until a session ends
        "SESSION_LIFETIME": 7 * 24 * 3600,  # default: seconds until it ends even when in use
        "SSE_UPGRADE_AFTER": 5,  # default: seconds until an answer becomes an event stream
        "SEND_BUFFER": 64,  # default: messages of a call that may wait for a slow reader
        "SEND_TIMEOUT": 60,  # default: seconds until a client that reads none of them counts as gone
        "EVENTS": 1000,  # default: messages of a stream that are kept for a client that comes back
        "KEEP_ALIVE": 15,  # default: seconds between comments on a silent stream
        "PING": 30,  # default: seconds after which a silent client on a WebSocket is asked whether it is there
        "MAX_STREAMS": 1000,  # default: streams of changes that are open at once, in one process
        "MAX_STREAMS_PER_OWNER": 50,  # default: those of one principal
        "WSGI_WAITS": 4,  # default: requests that may hold a thread to wait, under WSGI, in one process
        "WSGI_WAITS_PER_OWNER": 2,  # default: those of one principal
        "SUBSCRIPTIONS": 100,  # default: resources that one session or stream may subscribe to
        "ELICITATION_TIMEOUT": 600,  # default: seconds a call waits for the user's answer (handshake era)
        # default: seconds it waits for somebody to finish a page (stateless era), then it asks again
        "URL_ELICITATION_TIMEOUT": 60,
        "STATE_TTL": 3600,  # default: seconds for which it can be answered
        "EVENT_TTL": 600,  # default: seconds for which what clients are told is kept for those who come back
        "THREADS": 16,  # default: threads for sync handlers and the ORM
        "THREAD_QUEUE": 256,  # default: calls that may wait for one
        "WAITING_THREADS": 256,  # default: sync handlers that may wait for an answer, which takes none of THREADS
        "BACKGROUND": 256,  # default: pieces of work after the answer that may be under way
        "SHUTDOWN_GRACE": 10,  # default: seconds that running calls have when the process is told to end
        "STDIO_GRACE": 1,  # default: seconds that running calls have when a client has closed stdin
    },
    # Long jobs.
    "TASKS": {
        "BACKEND": "mcp_django.contrib.tasks.backends.in_process.InProcessBackend",  # default: here, or in workers
        "BACKEND_OPTIONS": {},  # default
        "CONCURRENCY": 16,  # default: tasks that one process runs at once
        "GRACE": 2,  # default: seconds in which a call may finish without becoming a task
        "POLL": 1,  # default: seconds between two polls that clients are told
        "TTL": 3600,  # default: seconds until a task expires
        "MAX_TTL": 24 * 3600,  # default: of any task
        "RETENTION": 24 * 3600,  # default: seconds for which rows of expired tasks stay for the admin
        "LEASE": 30,  # default: seconds until a silent worker counts as lost
        "UNKNOWN_TOOL_WAIT": 600,  # default: seconds that a task waits for a process that knows its tool
        "TASKS_PER_OWNER": 50,  # default: unfinished tasks of one caller
        "TASKS_PER_SERVER": 5000,  # default: of all callers
        "ARGUMENT_BYTES": 256 * 1024,  # default: bytes of the arguments of a task
        "RESULT_BYTES": 4 * 1024 * 1024,  # default: bytes of its result
    },
    # The control room in the admin: what is kept about calls.
    "RECORD": {
        "ROLLUPS": True,  # default: counts by minute, hour and day, and by caller and hour
        "CALLS": ["failed", "slow", "asked"],  # default: calls with a row; "all", "none", or a share from 0 to 1
        "SLOW": 1.0,  # default: seconds from which a call is slow
        "TOOLS": {},  # default: exceptions by tool, and the arguments and questions whose names rows keep
        "KEEP": {"calls": 30, "minutes": 2, "hours": 90, "days": 730},  # default: days
        "RUNNING": True,  # default: processes report themselves and their calls that are older than a second
        "DATABASE": "",  # default: the alias of another database; it needs RecordRouter
        "FLUSH": 2,  # default: seconds between two writes of a process
        "BUFFER": 10_000,  # default: calls that a process keeps until they are written
        "CALLS_PER_MINUTE": 600,  # default: rows of calls of a process
        "TRACE_URL": "",  # default: no links; such as "https://traces.example.com/trace/{trace_id}"
        "ANCHOR": "",  # default: no file with the ends of the chains outside of the database
        "CHAIN": False,  # default: rows of calls are not sealed in a hash chain, which `manage.py mcp_audit` verifies
    },
    # Alerts of the control room.
    "ALERTS": {
        "ENABLED": True,  # default
        "LIMITS": {},  # default: other limits than those of the reference, by rule
        "MAIL": [],  # addresses that get a mail; "admins" by default
        "INTERVAL": 30,  # default: seconds between two checks
        "WINDOW": 300,  # default: seconds of calls that a check covers
        "MIN_CALLS": 20,  # default: calls of a tool for an alert about its errors or slowness
        "CLEAR_AFTER": 120,  # default: calm seconds until an alert is over
    },
    # The channel layer that carries news to other processes. None: they look once a second.
    "CHANNEL_LAYER": "default",  # default
    # Pages that may send requests, besides CSRF_TRUSTED_ORIGINS and pages from loopback.
    "ALLOWED_ORIGINS": [],  # default
    # Pages that may read the answers too.
    "CORS_ALLOWED_ORIGINS": [],  # default
    # The module looked for in every installed app.
    "AUTODISCOVER_MODULES": ["mcp_tools"],  # default
    # Rows that backends with object permissions give, and the base class of toolsets of models.
    "ORM": {"OBJECT_PERMISSIONS": None, "TOOLSET": None},  # default
    # One tool for each verb of each model (`airport_list`), or "generic": one for each verb (`models_list`).
    "ORM_STYLE": "per_model",  # default
    # With DEBUG, show the text of an unexpected exception to the client; without DEBUG it is never shown.
    "EXPOSE_INTERNAL_ERRORS": True,
    # Stop the SQL of a call that was cancelled or timed out.
    "INTERRUPT_SQL": True,  # default
    # Seconds for which a worker trusts a token that it has verified.
    "TOKEN_CACHE_SECONDS": 10,  # default
    # Days for which a new personal access token may be valid. Without a limit, even for ever.
    "MAX_TOKEN_DAYS": None,  # default
}
