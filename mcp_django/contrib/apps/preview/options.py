"""Settings in `MCP["APPS_PREVIEW"]`, and the decision on access to the page."""

import re
from dataclasses import dataclass
from typing import Annotated, Any

from mcp_django import conf
from mcp_django.conf import register_settings

_PERMISSION = re.compile(r"[^\W\d]\w*\.\w+")


def _parse_permission(raw: Any) -> str | None:
    if raw is not None and (not isinstance(raw, str) or _PERMISSION.fullmatch(raw) is None):
        raise ValueError('must be None or a permission, such as "shop.view_order"')
    return raw


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewSettings:
    """`MCP["APPS_PREVIEW"]`: access to the preview page of apps."""

    permission: Annotated[str | None, _parse_permission] = None
    """Django permission of the users who may open the page.

    Without it the page exists with DEBUG only, for staff.
    """


get_settings = register_settings("APPS_PREVIEW", PreviewSettings)


def is_enabled() -> bool:
    """Return True if the page exists."""
    return conf.is_debug() or get_settings().permission is not None


def may_preview(user: Any) -> bool:
    """Return True if an authenticated user may open the page. May query the database."""
    permission = get_settings().permission
    if permission is not None:
        return bool(user.is_active and user.has_perm(permission))
    return conf.is_debug() and bool(user.is_active and user.is_staff)
