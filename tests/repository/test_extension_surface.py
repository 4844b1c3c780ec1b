"""The extensions of the package are written on public names, as those of others are."""

import ast

from tests.repository.test_architecture import FILES, PACKAGE, ROOT
from tests.repository.test_public_api_snapshot import MODULES, PROVISIONAL_MODULES

PUBLIC_MODULES = frozenset({*MODULES, *PROVISIONAL_MODULES, "mcp_django.conf", "mcp_django.signals"})
"""Modules whose names others may import. Of `conf`, `register_settings` only."""
PRIVATE_MODULES = {
    "apps": 10,
    "client_pages": 5,
    "control_room": 28,
    "http_tools": 15,
    "memory": 2,
    "oauth": 36,
    "openapi": 24,
    "playground": 39,
    "proxies": 24,
    "rest": 26,
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


def test_apps_import_no_more_private_modules_than_on_record() -> None:
    apps = sorted(path.name for path in (ROOT / PACKAGE / "contrib").iterdir() if (path / "__init__.py").exists())
    counts = {app: len(find_private_modules(app)) for app in apps}
    assert {app: count for app, count in counts.items() if count} == PRIVATE_MODULES
