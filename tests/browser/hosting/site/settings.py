"""Settings of the demo, for hosts of apps on other origins."""

import os

from project.settings import *  # noqa: F403
from project.settings import INSTALLED_APPS, MCP

INSTALLED_APPS = [*INSTALLED_APPS, "tests.browser.hosting.site"]
MCP = {**MCP, "CORS_ALLOWED_ORIGINS": os.environ["HOST_ORIGINS"].split()}
