"""Django settings of the project: the backend is Celery, and workers of `mcp_worker` share its rows."""

import json
import os
from typing import Any

from tests.servers.site.settings import *  # noqa: F403

DATABASES = {"default": json.loads(os.environ["SITE_DATABASE"])}
INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "mcp_django",
    "mcp_django.contrib.tasks",
    "tests.load.task_site",
]
MCP: dict[str, Any] = {
    "AUTH": "none",
    "SERVERS": {"default": {"EXTENSIONS": ["mcp_django.contrib.tasks.Tasks"]}},
    "LIMITS": {"THREADS": 4},
    "TASKS": {
        "BACKEND": "mcp_django.contrib.tasks.backends.celery.CeleryBackend",
        "LEASE": 3,
        "TASKS_PER_OWNER": 10_000,
        "TASKS_PER_SERVER": 10_000,
    },
}
if "SITE_BROKER" in os.environ:
    from tests.load.task_site import broker  # noqa: F401  # the app is the current one before a message is sent
globals().update(json.loads(os.environ.get("SITE_SETTINGS", "{}")))
