"""Settings in `MCP["APPS_PREVIEW"]`, and the decision on access to the page."""

import re
from dataclasses import dataclass
from typing import Annotated, Any

from django.conf import settings as django_settings
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.translation import gettext as _

from mcp_django.conf import register_settings
from mcp_django.extensions.operators import OverviewLink

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
    return django_settings.DEBUG or get_settings().permission is not None


def may_preview(user: Any) -> bool:
    """Return True if an authenticated user may open the page. May query the database."""
    permission = get_settings().permission
    if permission is not None:
        return bool(user.is_active and user.has_perm(permission))
    return django_settings.DEBUG and bool(user.is_active and user.is_staff)


def find_preview_link(request: HttpRequest) -> OverviewLink | None:
    """Return the link to the page for the admin.

    None if the page is not for the user, or its URLs are not included.
    """
    if not is_enabled() or not may_preview(request.user):
        return None
    try:
        url = reverse("mcp_apps_preview:page")
    except NoReverseMatch:
        return None
    return OverviewLink(url, _("Preview of apps"), _("The apps of your tools, shown as a chat shows them."))
