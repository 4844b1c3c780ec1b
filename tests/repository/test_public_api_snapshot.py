"""A snapshot of the public API: every public name with its signature, so that no change of it goes unseen.

After an intended change: `python -m tests.repository.test_public_api_snapshot`, and a line in CHANGELOG.md.
"""

import importlib
import inspect
from collections.abc import Iterator
from enum import EnumType
from pathlib import Path

MODULES = (
    "mcp_django",
    "mcp_django.client",
    "mcp_django.contrib.apps",
    "mcp_django.contrib.openapi",
    "mcp_django.contrib.proxies",
    "mcp_django.contrib.rest",
    "mcp_django.extensions",
    "mcp_django.lowlevel",
    "mcp_django.notifications",
    "mcp_django.observability",
    "mcp_django.orm",
    "mcp_django.providers",
    "mcp_django.testing",
    "mcp_django.types",
)
PROVISIONAL_MODULES = (
    "mcp_django.extensions.admin_pages",
    "mcp_django.extensions.callers",
    "mcp_django.extensions.calls",
    "mcp_django.extensions.conversations",
    "mcp_django.extensions.errors",
    "mcp_django.extensions.event_loop",
    "mcp_django.extensions.html_pages",
    "mcp_django.extensions.http_client",
    "mcp_django.extensions.internal_requests",
    "mcp_django.extensions.operators",
    "mcp_django.extensions.primitives",
    "mcp_django.extensions.rows",
    "mcp_django.extensions.schemas",
    "mcp_django.extensions.stored_calls",
    "mcp_django.providers.files",
)
"""Modules for larger extensions, whose names may change until the second release with them."""
SNAPSHOT = Path(__file__).parent / "public_api.txt"


def signature(value: object) -> str:
    """Return the parameters of a callable, without annotations and defaults, which Pythons write differently."""
    if isinstance(value, EnumType):
        return ""
    try:
        parameters = inspect.signature(value).parameters.values()  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return ""
    prefix = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    parts = []
    for parameter in parameters:
        star = prefix.get(parameter.kind, "")
        only = "kw:" if parameter.kind is inspect.Parameter.KEYWORD_ONLY else ""
        optional = "" if parameter.default is inspect.Parameter.empty else "=…"
        parts.append(f"{only}{star}{parameter.name}{optional}")
    return f"({', '.join(parts)})"


def members(cls: type) -> Iterator[str]:
    """Yield the public members of a class that the package defines."""
    for name in sorted(dir(cls)):
        if name.startswith("_"):
            continue
        owner = next((base for base in cls.__mro__ if name in vars(base)), None)
        if owner is None or not owner.__module__.startswith("mcp_django"):
            continue
        value = inspect.getattr_static(cls, name)
        if isinstance(value, type) and issubclass(value, Exception):
            continue  # Django adds them to models; newer versions add more
        function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        yield f"  .{name}{signature(function) if inspect.isfunction(function) else ''}"


def public_api() -> str:
    """Return the public API as text, a line for each name and member."""
    lines = []
    for module_name in (*MODULES, *PROVISIONAL_MODULES):
        module = importlib.import_module(module_name)
        lines.append(module_name)
        for name in sorted(module.__all__):
            value = getattr(module, name)
            lines.append(f" {name}{signature(value) if inspect.isroutine(value) or inspect.isclass(value) else ''}")
            if inspect.isclass(value):
                lines += members(value)
    return "\n".join(lines) + "\n"


def test_the_public_api_is_the_one_on_record() -> None:
    assert public_api() == SNAPSHOT.read_text(encoding="utf-8")


if __name__ == "__main__":
    import os

    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    SNAPSHOT.write_text(public_api(), encoding="utf-8")
