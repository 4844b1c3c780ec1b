"""Page of the playground in the admin.

The server keeps no state: everything is in the URL and the form.
"""

from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.http import urlencode
from django.utils.text import capfirst
from django.utils.translation import gettext as _

from mcp_django import wiring
from mcp_django.admin.base import BaseAdmin
from mcp_django.auth.principal import DjangoPrincipal
from mcp_django.contrib.control_room.models import Playground
from mcp_django.contrib.control_room.playground.messages import format_json
from mcp_django.contrib.control_room.playground.primitives import (
    KINDS,
    URI_SCHEMA,
    Kind,
    ListedPrimitive,
    list_entries,
)
from mcp_django.contrib.control_room.playground.principals import (
    ACT_PERMISSION,
    USE_PERMISSION,
    build_principal,
    find_acting_user,
    is_playground_enabled,
)
from mcp_django.contrib.control_room.playground.runs import SHOW, RunTarget, build_run_context
from mcp_django.contrib.control_room.playground.schema_forms import PREFIX, ArgumentsForm, build_filled_form, read_json

SEND, SEND_JSON = "send", "send_json"


@admin.register(Playground)
class PlaygroundAdmin(BaseAdmin):
    """Page of the playground. Its model has no rows of its own."""

    can_add = False
    can_change = False
    can_delete = False

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return True if the playground exists, and the user may use it."""
        return is_playground_enabled() and request.user.has_perm(USE_PERMISSION)

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Return True if the index of the admin shows the playground."""
        return self.has_view_permission(request)

    def get_urls(self) -> list[URLPattern]:
        """Return the URL of the page."""
        name = f"{self.opts.app_label}_{self.opts.model_name}_changelist"
        return [path("", self.admin_site.admin_view(self.changelist_view), name=name)]

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Show the lists and a form; send the request of a POST."""
        if not is_playground_enabled():
            raise Http404("The playground is off")
        if not self.has_view_permission(request):
            raise PermissionDenied
        alias, kind = self._read_place(request)
        user = find_acting_user(request, request.GET.get("as", "").strip())
        principal = build_principal(user, request.user)
        entries = list_entries(alias, principal, kind)
        entry = next((each for each in entries if each.key == request.GET.get("name")), None)

        context = self._build_page_context(request, alias, kind, user)
        context |= {"entries": entries, "entry": entry}
        if entry is not None:
            context |= self._build_entry_context(request, alias, principal, entry, kind)
        response = TemplateResponse(request, "mcp_control_room/playground.html", context | (extra_context or {}))
        response["Cache-Control"] = "no-store"
        return response

    def _read_place(self, request: HttpRequest) -> tuple[str, Kind]:
        aliases = wiring.list_aliases()
        alias = request.GET.get("server", aliases[0])
        if alias not in aliases:
            raise Http404("Unknown server")
        return alias, KINDS.get(request.GET.get("kind", ""), KINDS["tools"])

    def _build_page_context(self, request: HttpRequest, alias: str, kind: Kind, user: Any) -> dict[str, Any]:
        query = {"server": alias, "as": user.get_username()}
        return self.build_context(
            request,
            title=capfirst(str(self.opts.verbose_name)),
            home_url=reverse(f"{self.admin_site.name}:index"),
            server=alias,
            servers=wiring.list_aliases(),
            kind=kind.name,
            kinds=[(name, f"?{urlencode({**query, 'kind': name})}") for name in KINDS],
            acting_name=user.get_username(),
            may_act=request.user.has_perm(ACT_PERMISSION),
            query=urlencode({**query, "kind": kind.name}),
        )

    def _build_entry_context(
        self, request: HttpRequest, alias: str, principal: DjangoPrincipal, entry: ListedPrimitive, kind: Kind
    ) -> dict[str, Any]:
        schema = entry.build_schema()
        start = str(entry.raw.get("uri") or entry.raw.get("uriTemplate") or "")
        initial = {f"{PREFIX}uri": start} if schema is URI_SCHEMA else {}
        act = request.POST.get("act", "") if request.method == "POST" else ""
        form = ArgumentsForm(schema, request.POST if act in (SHOW, SEND) else None, initial=initial)
        context: dict[str, Any] = {"form": form, "schema": format_json(schema)}
        arguments = self._read_arguments(request, act, form, context)
        if arguments is None:
            return context

        context |= build_run_context(request, RunTarget(alias, principal, kind, entry), arguments)
        if act == SEND_JSON:
            context["form"] = form = build_filled_form(schema, arguments) or form
        if form.is_bound and "exchange" in context:
            form.add_server_errors(context["exchange"].error_text)
        return context

    def _read_arguments(
        self, request: HttpRequest, act: str, form: ArgumentsForm, context: dict[str, Any]
    ) -> dict[str, Any] | None:
        """Return the arguments of a POST; None without valid ones."""
        if act in (SHOW, SEND):
            return form.build_arguments() if form.is_valid() else None
        if act != SEND_JSON:
            return None
        text = request.POST.get("arguments", "")
        context["arguments"] = text
        try:
            arguments = read_json(text)
        except ValueError as problem:
            context["error"] = _("This is not valid JSON: %(problem)s") % {"problem": problem}
            return None
        if not isinstance(arguments, dict):
            context["error"] = _("The arguments must be a JSON object.")
            return None
        return arguments
