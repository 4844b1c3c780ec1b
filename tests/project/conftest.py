"""Processes of the demo, with everything they write below a temporary directory."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# The tests in there need the demo's settings; test_settings.py runs them in a process that has them.
collect_ignore = [] if os.environ.get("DJANGO_SETTINGS_MODULE") == "project.settings" else ["inside"]


def environment(demo_dir: Path) -> dict[str, str]:
    """Variables for a process of the demo that leaves the checkout, and databases around it, alone."""
    ours = {
        "DEMO_AUTH",
        "DEMO_ORIGIN",
        "DATABASE_URL",
        "REDIS_URL",
        "SECRET_KEY",
        "ALLOWED_HOSTS",
        "DJANGO_DEBUG",
        "PYTEST_ADDOPTS",
    }
    inherited = {name: value for name, value in os.environ.items() if name not in ours}
    return {**inherited, "DJANGO_SETTINGS_MODULE": "project.settings", "DEMO_DIR": str(demo_dir)}
