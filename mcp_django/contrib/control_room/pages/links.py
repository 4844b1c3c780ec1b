"""Links to other pages of the admin, as far as the user of a request may open them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from django.apps import apps
from django.contrib.admin import AdminSite
from django.db import models
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.http import urlencode
from django.utils.text import capfirst

from mcp_django.contrib.control_room.added_links import AddedLink, LinkSubject, build_links
from mcp_django.contrib.control_room.models import CallLogEntry
from mcp_django.extensions.admin_pages import BaseAdmin

VIEW, MANAGE = "view", "manage"
"""Permissions of `BaseAdmin`: to see the rows, and to run actions on them."""


class RoomLinks:
    """Links for the user of one request, on one admin site."""

    def __init__(self, request: HttpRequest, site: AdminSite) -> None:
        self._request = request
        self._site = site

    def find_admin(self, model: type[models.Model], permission: str = VIEW) -> Any:
        """Return the admin of a model; None without one, or if the user lacks the permission."""
        if not self._site.is_registered(model):
            return None
        model_admin = self._site.get_model_admin(model)
        is_allowed = getattr(model_admin, f"has_{permission}_permission")(self._request)
        return model_admin if is_allowed else None

    def find(self, model: type[models.Model], page: str = "changelist", *args: Any, permission: str = VIEW) -> str:
        """Return the URL of a page of a model; "" if the user may not open it."""
        if self.find_admin(model, permission) is None:
            return ""
        name = f"{self._site.name}:{model._meta.app_label}_{model._meta.model_name}_{page}"
        try:
            return reverse(name, args=args)
        except NoReverseMatch:  # another admin of the project, without this page
            return ""

    def build_added(self, subject: LinkSubject) -> list[AddedLink]:
        """Return the links of other apps on the page of a subject."""
        return build_links(self._request, self._site, subject)

    def find_calls(self, **lookups: Any) -> str:
        """Return the URL of the list of recorded calls, filtered; "" without the permission."""
        url = self.find(CallLogEntry)
        return f"{url}?{urlencode(lookups)}" if url else ""


class ModelOverview(NamedTuple):
    """Figures of a model, with its list."""

    name: str
    title: str
    url: str
    figures: Sequence[tuple[Any, Any]]


def list_overviews(request: HttpRequest, site: AdminSite) -> list[ModelOverview]:
    """Return the figures of models that the user may see, such as those of tasks."""
    found = []
    for model in apps.get_models():
        model_admin = site.get_model_admin(model) if site.is_registered(model) else None
        if not isinstance(model_admin, BaseAdmin) or not model_admin.has_view_permission(request):
            continue
        figures = model_admin.list_figures()
        if figures:
            opts = model_admin.opts
            title, url = capfirst(str(opts.verbose_name_plural)), model_admin.get_url("changelist")
            found.append(ModelOverview(f"{opts.app_label}-{opts.model_name}", title, url, figures))
    return found
