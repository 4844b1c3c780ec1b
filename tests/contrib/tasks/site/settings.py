"""Django settings of the project. Heartbeats are rare, so that no test waits for one by chance."""

import json
import os

SECRET_KEY = "for-tests-only"
ALLOWED_HOSTS = ["127.0.0.1"]
ROOT_URLCONF = "tests.contrib.tasks.site.urls"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "mcp_django",
    "mcp_django.contrib.tasks",
    "tests.contrib.tasks.site",
]
MIDDLEWARE: list[str] = []
DATABASES = {"default": {**json.loads(os.environ["SITE_DATABASE"]), "ATOMIC_REQUESTS": True}}
MCP = {
    "AUTH": "none",
    "SERVERS": {"default": {"EXTENSIONS": ["mcp_django.contrib.tasks.Tasks"]}},
    "LIMITS": {"THREADS": 4},
    "TASKS": {"BACKEND": "mcp_django.contrib.tasks.worker.WorkerBackend", "LEASE": 3600},
}
