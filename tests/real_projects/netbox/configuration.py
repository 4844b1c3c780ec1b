"""NetBox's configuration (`NETBOX_CONFIGURATION`)."""

from tests.real_projects.databases import postgres

ALLOWED_HOSTS = ["*"]
DATABASES = {"default": postgres()}
REDIS = {
    name: {"HOST": "127.0.0.1", "PORT": 6379, "DATABASE": number} for name, number in [("tasks", 2), ("caching", 3)]
}
SECRET_KEY = "for-these-tests-only-" * 3
API_TOKEN_PEPPERS = {1: "for-these-tests-only-" * 3}
PLUGINS: list[str] = []
