"""Django settings of the fixtures server: no project around it, a database of its own that `server` throws away.

SITE_DATABASE is the entry of a database on a server, FIXTURES_DATABASE the path of a file.
"""

import json
import os

SECRET_KEY = "serves-fixtures-on-loopback-and-is-thrown-away"
DEBUG = False
ALLOWED_HOSTS = ["127.0.0.1", "localhost", "[::1]"]
ROOT_URLCONF = "tests.conformance.urls"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "mcp_django",
    "mcp_django.contrib.skills",
    "mcp_django.contrib.tasks",
    "tests.conformance",
]
MIDDLEWARE: list[str] = []
SQLITE_OPTIONS = {"transaction_mode": "IMMEDIATE", "init_command": "PRAGMA journal_mode=WAL;"}
DATABASES = {
    "default": json.loads(os.environ["SITE_DATABASE"])
    if "SITE_DATABASE" in os.environ
    else {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ["FIXTURES_DATABASE"],
        "OPTIONS": SQLITE_OPTIONS,
    },
}
# AUTH is "none" while DEBUG is off; a skill has values that YAML 1.1 reads differently.
SILENCED_SYSTEM_CHECKS = ["mcp_django.W002", "mcp_skills.W001"]
TASK_BACKEND = os.environ.get("FIXTURES_TASK_BACKEND")
MCP = {
    "AUTH": "none",
    "TASKS": {} if TASK_BACKEND is None else {"BACKEND": TASK_BACKEND},
    "SERVERS": {
        "default": {
            "NAME": "fixtures",
            "VERSION": "1.0.0",
            "EXTENSIONS": ["mcp_django.contrib.tasks.Tasks", "mcp_django.contrib.skills.SkillsExtension"],
            "PROVIDERS": ["mcp_django.contrib.skills.AppSkills"],
            "PAGE_SIZE": int(os.environ.get("FIXTURES_PAGE_SIZE", "1000")),
        },
    },
}
