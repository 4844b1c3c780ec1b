"""pretix's settings, with a database and a data directory of this run."""

import os
from pathlib import Path

os.environ["DATA_DIR"] = os.environ["REAL_PROJECT_FILES"]
Path(os.environ["DATA_DIR"]).mkdir(parents=True, exist_ok=True)
os.environ.update(PRETIX_DATABASE_BACKEND="sqlite3", PRETIX_DATABASE_NAME=os.environ["REAL_PROJECT_DATABASE"])

from pretix.settings import *  # noqa: E402, F403
from pretix.settings import INSTALLED_APPS  # noqa: E402

ROOT_URLCONF = "tests.real_projects.pretix.urls"
INSTALLED_APPS = [*INSTALLED_APPS, "channels", "mcp_django"]
AROUND = ["tests.real_projects.pretix.scopes.enter_organizers"]
MCP = {"AUTH": "none", "SERVERS": {"default": {"AROUND": AROUND}, "views": {}}}
