"""Page of the playground in the admin.

The server keeps no state: everything is in the URL and the form.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.core.handlers.asgi import ASGIRequest
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.http import urlencode
from django.utils.text import capfirst

from mcp_django import wiring
from mcp_django.admin.access.page import ACCESS_PERMISSION
from mcp_django.admin.base import log_act
from mcp_django.contrib.playground.acts import EntryRequest, describe_act, perform_act
from mcp_django.contrib.playground.hosted_apps import build_app_document, can_host_apps
from mcp_django.contrib.playground.models import Playground, is_playground_enabled
from mcp_django.contrib.playground.page_state import PageState
from mcp_django.contrib.playground.primitives import (
    KINDS,
    Kind,
    ListedPrimitive,
    ListRow,
    build_list_rows,
    find_entry,
    list_entries,
    list_hidden_entries,
    list_kinds,
    load_capabilities,
)
from mcp_django.contrib.playground.principals import (
    ACT_PERMISSION,
    build_principal,
    find_acting_user,
    may_use_playground,
)
from mcp_django.contrib.playground.runs.operations import RunTarget
from mcp_django.extensions.admin_pages import BaseAdmin
from mcp_django.extensions.callers import DjangoPrincipal
from mcp_django.extensions.calls import REVISIONS
from mcp_django.protocol.revisions import LATEST
from mcp_django.protocol.types import LOG_LEVELS
from mcp_django.transports.inprocess.profile import DEFAULT_LOG_LEVEL


class PagePlace(NamedTuple):
    """Server, kind of entries, and principal of a request."""

    alias: str
    kind: Kind
    principal: DjangoPrincipal


@admin.register(Playground)
class PlaygroundAdmin(BaseAdmin):
    """Page of the playground. Its model has no rows of its own."""

    can_add = False
    can_change = False
    can_delete = False

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return True if the playground exists, and the user may use it."""
        return may_use_playground(request.user)

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Return True if the index of the admin shows the playground."""
        return self.has_view_permission(request)

    def get_urls(self) -> list[URLPattern]:
        """Return the URLs of the page, and of the frame with an app."""
        name = f"{self.opts.app_label}_{self.opts.model_name}"
        return [
            path("", self.admin_site.admin_view(self.changelist_view), name=f"{name}_changelist"),
            path("app/", self.admin_site.admin_view(self.app_view), name=f"{name}_app"),
        ]

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Show the lists and a form; perform the act of a POST."""
        self._check_access(request)
        place = self._read_place(request)
        capabilities = load_capabilities(place.alias, place.principal)
        entries = list_entries(place.alias, place.principal, place.kind)
        entry = find_entry(entries, place.kind, request.GET.get("name"))
        state: Any = PageState()
        if entry is not None:
            target = RunTarget(place.alias, place.principal, place.kind, entry)
            state = perform_act(EntryRequest(request, target, capabilities))
        if isinstance(state, PageState):
            context = self._build_page_context(request, place)
            context |= {"kinds": list_kinds(capabilities), "entries": entries, "entry": entry}
            context |= {"list_rows": self._build_list_rows(request, place, entries), **state.build_context()}
            response: HttpResponse = TemplateResponse(
                request, "mcp_playground/playground.html", context | (extra_context or {})
            )
        else:
            response = state
        response["Cache-Control"] = "no-store"
        return response

    def app_view(self, request: HttpRequest) -> HttpResponse:
        """Return the document of the app of a tool for its frame, as the acting user reads it."""
        self._check_access(request)
        alias, kind, principal = self._read_place(request)
        entry = find_entry(list_entries(alias, principal, kind), kind, request.GET.get("name"))
        if entry is None or entry.app_uri is None or not can_host_apps():
            raise Http404("The acting user sees no app of this tool")
        act = describe_act(principal.user.get_username())
        log_act(request, Playground, f"resources/read {entry.app_uri} ({alias})", act)
        return build_app_document(alias, principal, entry.app_uri)

    def _check_access(self, request: HttpRequest) -> None:
        """Raise Http404 without a playground, and PermissionDenied for a user who may not use it."""
        if not is_playground_enabled():
            raise Http404("The playground is off")
        if not self.has_view_permission(request):
            raise PermissionDenied

    def _read_place(self, request: HttpRequest) -> PagePlace:
        """Return the place of a request. Raises Http404 for an unknown server, and PermissionDenied."""
        aliases = wiring.list_aliases()
        alias = request.GET.get("server", aliases[0])
        if alias not in aliases:
            raise Http404("Unknown server")
        user = find_acting_user(request.user, request.GET.get("as", "").strip())
        kind = KINDS.get(request.GET.get("kind", ""), KINDS["tools"])
        return PagePlace(alias, kind, build_principal(user, request.user))

    def _build_list_rows(
        self, request: HttpRequest, place: PagePlace, entries: Sequence[ListedPrimitive]
    ) -> list[ListRow]:
        """Return the rows of the list, with the hidden entries for users who may see them."""
        is_allowed = request.user.has_perm(ACCESS_PERMISSION)
        hidden = list_hidden_entries(place.alias, place.principal, place.kind, entries) if is_allowed else []
        return build_list_rows(entries, hidden, request.GET.get("q", "").strip())

    def _build_page_context(self, request: HttpRequest, place: PagePlace) -> dict[str, Any]:
        username = place.principal.user.get_username()
        return self.build_context(
            request,
            title=capfirst(str(self.opts.verbose_name)),
            home_url=reverse(f"{self.admin_site.name}:index"),
            server=place.alias,
            servers=wiring.list_aliases(),
            kind=place.kind,
            acting_name=username,
            may_act=request.user.has_perm(ACT_PERMISSION),
            query=urlencode({"server": place.alias, "as": username}),
            filter_text=request.GET.get("q", "").strip(),
            revisions=list(reversed(REVISIONS)),
            revision=request.POST.get("revision", LATEST.version),
            log_levels=LOG_LEVELS,
            log_level=request.POST.get("log_level", DEFAULT_LOG_LEVEL),
            can_reply=isinstance(request, ASGIRequest),
        )
