"""System check of the permissions that declarations require.

Django creates permissions from models, so they are known without a query.
"""

import difflib
from collections.abc import Iterator

from django.apps import apps
from django.contrib.auth import get_permission_codename
from django.core.checks import CheckMessage, Warning

from mcp_django.checks.installation import register_check
from mcp_django.conf.project import authentication_backends
from mcp_django.orm import ModelToolset
from mcp_django.orm.declaration.base import TOOL_ACTIONS
from mcp_django.server.primitives import registry
from mcp_django.server.primitives.base import Permission, Primitive

_MODEL_BACKENDS = frozenset(
    f"django.contrib.auth.backends.{name}"
    for name in ("ModelBackend", "AllowAllUsersModelBackend", "RemoteUserBackend", "AllowAllUsersRemoteUserBackend")
)


@register_check(reads_settings=False)
def check_permissions() -> Iterator[CheckMessage]:
    """Check that permissions of declarations exist.

    Other authentication backends may define permissions of their own. With them only misspellings are reported.
    """
    known = set(_iter_permissions())
    is_complete = _MODEL_BACKENDS.issuperset(authentication_backends())
    for name, sources in _find_required_permissions().items():
        matches = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
        if name in known or not (matches or is_complete):
            continue
        others = f" and {len(sources) - 1} more" if len(sources) > 1 else ""
        suggestion = f"Did you mean {matches[0]!r}?" if matches else "Add it to Meta.permissions of a model."
        yield Warning(
            f"{sources[0]}{others}: requires the permission {name!r}, which no installed app defines. Only superusers "
            "have it.",
            hint=f"{suggestion} Permissions are written 'app_label.codename'.",
            id="mcp_django.W011",
        )


def _iter_permissions() -> Iterator[str]:
    """Yield the permissions that Django creates for the installed models."""
    for model in apps.get_models():
        options = model._meta
        for action in options.default_permissions:
            yield f"{options.app_label}.{get_permission_codename(action, options)}"
        for codename, _ in options.permissions:
            yield f"{options.app_label}.{codename}"


def _find_required_permissions() -> dict[str, list[str]]:
    """Return the permissions that registered primitives require, with the sources of those."""
    found: dict[str, list[str]] = {}
    for declared in registry.REGISTRIES.values():
        for item in declared.iter_all():
            for name in _list_names(item.permission) if isinstance(item, Primitive) else ():
                found.setdefault(name, []).append(item.source)
    reported_elsewhere = set(_iter_default_permissions())
    return {name: sources for name, sources in found.items() if name not in reported_elsewhere}


def _iter_default_permissions() -> Iterator[str]:
    """Yield the permissions that model toolsets require by themselves; W010 reports those."""
    for declared in registry.REGISTRIES.values():
        for toolset in declared.toolsets:
            if isinstance(toolset, ModelToolset):
                yield from (toolset.permission_name(action) for action in set(TOOL_ACTIONS.values()))


def _list_names(permission: Permission | None) -> list[str]:
    if permission is None or callable(permission):
        return []
    return [part for part in ([permission] if isinstance(permission, str) else permission) if isinstance(part, str)]
