"""The extensions of the package are written on public names, as those of others are."""

import ast
import subprocess
import sys

from tests.repository.test_architecture import FILES, PACKAGE, ROOT
from tests.repository.test_public_api_snapshot import MODULES, PROVISIONAL_MODULES

PUBLIC_MODULES = frozenset({*MODULES, *PROVISIONAL_MODULES, "mcp_django.conf", "mcp_django.signals"})
"""Modules whose names others may import. Of `conf`, `register_settings` only."""
PRIVATE_MODULES = {
    "apps": 6,
    "client_pages": 4,
    "control_room": 22,
    "memory": 2,
    "oauth": 24,
    "openapi": 1,
    "playground": 23,
    "proxies": 21,
    "rest": 4,
    "skills": 8,
    "tasks": 2,
}
"""Number of private modules of the core that each app imports. It only shrinks: make a name public, or do without."""


def find_private_modules(app: str) -> set[str]:
    """Return the private modules outside the app that it imports; those of other apps are not counted."""
    folder, own = ROOT / PACKAGE / "contrib" / app, f"{PACKAGE}.contrib."
    found = set()
    for path in FILES:
        if folder not in path.parents:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{PACKAGE}."):
                found.add(str(node.module))
    return {name for name in found if not name.startswith(own)} - PUBLIC_MODULES


def test_extensions_work_without_the_admin() -> None:
    """Import all modules of apps without an admin of their own, where the admin of Django is not installed."""
    code = """
import importlib, pkgutil
import django
from django.conf import settings
apps = ["tasks", "apps", "skills"]
settings.configure(
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "mcp_django",
                    *(f"mcp_django.contrib.{app}" for app in apps)],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    SECRET_KEY="0123456789abcdef",
)
django.setup()
for room in ["mcp_django.extensions", *(f"mcp_django.contrib.{app}" for app in apps)]:
    package = importlib.import_module(room)
    for module in pkgutil.walk_packages(package.__path__, room + "."):
        if module.name.rpartition(".")[2] not in ("admin", "admin_pages", "celery", "django_tasks"):
            importlib.import_module(module.name)
"""
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert ran.returncode == 0, ran.stderr


def test_apps_import_no_more_private_modules_than_on_record() -> None:
    apps = sorted(path.name for path in (ROOT / PACKAGE / "contrib").iterdir() if (path / "__init__.py").exists())
    counts = {app: len(find_private_modules(app)) for app in apps}
    assert {app: count for app, count in counts.items() if count} == PRIVATE_MODULES
