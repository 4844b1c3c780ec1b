"""NetBox's settings, with the package added by the steps of its documentation."""

from netbox.settings import *  # noqa: F403
from netbox.settings import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "channels", "mcp_django"]
ROOT_URLCONF = "tests.real_projects.netbox.urls"
AROUND = ["tests.real_projects.netbox.change_log.track_events"]
MCP = {
    "AUTH": "none",
    "ORM": {"OBJECT_PERMISSIONS": "tests.real_projects.netbox.change_log.filter_rows"},
    "SERVERS": {"default": {"AROUND": AROUND}, "views": {"AROUND": AROUND}},
}
