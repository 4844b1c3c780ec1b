"""System checks of the permissions that declarations require, and of their meaning for single rows.

Django creates permissions from models, so they are known without a query.
"""

import difflib
import inspect
from collections.abc import Iterator

from django.apps import apps
from django.contrib.auth import get_permission_codename, get_user_model
from django.core.checks import CheckMessage, Error, Warning

from mcp_django.checks.installation import register_check
from mcp_django.conf.project import authentication_backends
from mcp_django.orm import ModelToolset
from mcp_django.orm.declaration.base import TOOL_ACTIONS
from mcp_django.orm.row_permissions import get_row_permissions, iter_object_backends
from mcp_django.orm.toolset import get_base_toolset
from mcp_django.schema import DeclarationError
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


@register_check()
def check_row_permissions() -> Iterator[CheckMessage]:
    """Check that the project states the meaning of permissions for rows, if its backends do not define it."""
    if get_row_permissions().is_stated:
        return
    closed = [toolset.source for toolset in _iter_model_toolsets() if _requires_statement(toolset)]
    if closed:
        backends = ", ".join(f"{backend.__module__}.{backend.__qualname__}" for backend in iter_object_backends())
        others = f" and {len(closed) - 1} more" if len(closed) > 1 else ""
        yield Error(
            f"{closed[0]}{others}: no rows are served, except to superusers, because AUTHENTICATION_BACKENDS has "
            f"{backends}, and the project does not state what a permission without an object means.",
            hint='Set MCP["ORM"]["OBJECT_PERMISSIONS"] to "all" if a yes is about all rows; to "some" to ask has_perm '
            "about each row; or to the dotted path of a function that filters rows in SQL. Or override get_queryset "
            "and the permission hooks. docs/protect/object-permissions.md describes the choices.",
            id="mcp_django.E070",
        )


@register_check()
def check_base_toolset() -> Iterator[CheckMessage]:
    """Check that all toolsets extend the base class of the project."""
    try:
        base = get_base_toolset()
    except ImportError:
        return  # E007 reports the path.
    except DeclarationError as problem:
        yield Error(str(problem), hint="Use an importable path: package.module.name.", id="mcp_django.E007")
        return
    for toolset in _iter_model_toolsets():
        if not isinstance(toolset, base):
            yield Warning(
                f'{toolset.source}: does not extend {base.__name__}, which MCP["ORM"]["TOOLSET"] names.',
                hint=f"Let it extend {base.__name__}. Otherwise the hooks of that class do not decide about its rows.",
                id="mcp_django.W070",
            )


@register_check()
def check_user_model() -> Iterator[CheckMessage]:
    """Check that users have Django's permissions, if toolsets require them."""
    user_model = get_user_model()
    superuser = inspect.getattr_static(user_model, "is_superuser", None)
    if (
        callable(getattr(user_model, "has_perm", None))
        and superuser is not None
        and not isinstance(superuser, property)
    ):
        return
    closed = [toolset.source for toolset in _iter_model_toolsets() if _requires_statement(toolset)]
    if closed:
        others = f" and {len(closed) - 1} more" if len(closed) > 1 else ""
        yield Warning(
            f"{closed[0]}{others}: requires permissions of Django, which {user_model._meta.label} does not have. "
            "Probably no user sees the tools.",
            hint="Override the hooks has_view_permission, has_add_permission, has_change_permission and "
            'has_delete_permission in a base class of the toolsets, and name it in MCP["ORM"]["TOOLSET"].',
            id="mcp_django.W071",
        )


def _iter_model_toolsets() -> Iterator[ModelToolset]:
    for declared in registry.REGISTRIES.values():
        yield from (toolset for toolset in declared.toolsets if isinstance(toolset, ModelToolset))


def _requires_statement(toolset: ModelToolset) -> bool:
    """Return True if a permission of Django decides about rows of the toolset, or of its inlines."""
    actions = {TOOL_ACTIONS[name] for name in toolset.tools}
    if any(not toolset.is_overridden(f"has_{action}_permission") for action in actions):
        return True
    return any(not inline.replaces_view_permission for inline in toolset.inline_toolsets)
