"""Settings with a mistake in nearly every line."""

SECRET_KEY = "for-tests-only"
DEBUG = False
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "tests.mistakes.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    "daphne",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "oauth2_provider",
    "mcp_django",
    "tests.mistakes",
]
ASGI_APPLICATION = "tests.mistakes.asgi.application"
MIDDLEWARE = ["django.middleware.common.CommonMiddleware", "tests.mistakes.middleware.Stopwatch"]
POSTGRES = {"ENGINE": "django.db.backends.postgresql", "NAME": "shop"}
DATABASES = {
    "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.sqlite3"},
    "reports": {**POSTGRES, "CONN_MAX_AGE": 60},
    "archive": {**POSTGRES, "OPTIONS": {"pool": True}},
}
CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
MCP = {
    "AUTH": "tests.interaction.verifiers.Tokens",
    "ALLOWED_ORIGINS": ["http://pages.example"],
    "RATES": {"TOKEN_FAILURES": "5/m"},
    "TOKEN_CACHE": "default",
    "TOKEN_CACHE_SECONDS": 300,
    "LIMTIS": {"BODY": 1000},
    "SERVERS": {"default": {"MIDDLEWARE": ["tests.mistakes.middleware.Missing"]}},
}
