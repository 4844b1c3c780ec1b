"""Page of the playground in the admin.

The server keeps no state: everything is in the URL and the form.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

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
from mcp_django.conf import get_settings
from mcp_django.contrib.control_room.models import Playground
from mcp_django.contrib.control_room.pages.room import log_act
from mcp_django.contrib.control_room.playground.content_blocks import list_blocks
from mcp_django.contrib.control_room.playground.copies import build_copies
from mcp_django.contrib.control_room.playground.messages import build_request, format_json, list_all, send
from mcp_django.contrib.control_room.playground.principals import (
    ACT_PERMISSION,
    USE_PERMISSION,
    build_principal,
    find_acting_user,
    is_playground_enabled,
)
from mcp_django.contrib.control_room.playground.schema_forms import PREFIX, ArgumentsForm

URI_SCHEMA = {"properties": {"uri": {"type": "string", "title": "URI"}}, "required": ["uri"]}
SHOW, SEND, SEND_JSON = "show", "send", "send_json"


class Kind(NamedTuple):
    """Kind of primitives."""

    name: str
    method: str
    """Method that uses one of them."""
    lists: tuple[tuple[str, str], ...]
    """Methods that list them, and the keys of the results."""


KINDS = {
    kind.name: kind
    for kind in (
        Kind("tools", "tools/call", (("tools/list", "tools"),)),
        Kind(
            "resources",
            "resources/read",
            (("resources/list", "resources"), ("resources/templates/list", "resourceTemplates")),
        ),
        Kind("prompts", "prompts/get", (("prompts/list", "prompts"),)),
    )
}


class ListedPrimitive(NamedTuple):
    """Tool, resource, template or prompt, as the server lists it to the acting user."""

    key: str
    raw: Mapping[str, Any]

    @property
    def title(self) -> str:
        """Title for people."""
        return str(self.raw.get("title") or self.raw.get("name") or self.key)

    @property
    def description(self) -> str:
        """Description for the model."""
        return str(self.raw.get("description", ""))

    @property
    def may_write(self) -> bool:
        """True for a tool that does not say that it only reads."""
        return "inputSchema" in self.raw and self.raw.get("annotations", {}).get("readOnlyHint") is not True

    def build_schema(self) -> Mapping[str, Any]:
        """Return the schema of its arguments."""
        if "inputSchema" in self.raw:
            schema: Mapping[str, Any] = self.raw["inputSchema"]
            return schema
        if "uri" in self.raw or "uriTemplate" in self.raw:
            return URI_SCHEMA
        arguments = self.raw.get("arguments", ())
        return {
            "properties": {each["name"]: {**each, "type": "string"} for each in arguments},
            "required": [each["name"] for each in arguments if each.get("required")],
        }

    def build_params(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the params of the request that uses it."""
        if "uri" in self.raw or "uriTemplate" in self.raw:
            return dict(arguments)
        return {"name": self.key, "arguments": dict(arguments)}


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
        principal = build_principal(user)
        entries = _list_entries(alias, principal, kind)
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

        message = build_request(kind.method, entry.build_params(arguments))
        username = principal.user.get_username()
        url = request.build_absolute_uri("/" + get_settings().servers[alias].path.lstrip("/"))
        context |= {
            "arguments": format_json(arguments),
            "message": format_json(message),
            "copies": build_copies(url, alias, username, message),
        }
        if act == SHOW:
            return context
        if entry.may_write and request.POST.get("confirmed") != "on":
            context["error"] = _("This tool may write. Tick the box to run it.")
            return context

        log_act(request, f"{kind.method} {entry.key} ({alias})", f"Sent in the playground as {username}.")
        exchange = send(alias, principal, message)
        blocks = [] if exchange.result is None else list_blocks(exchange.result)
        return context | {"exchange": exchange, "blocks": blocks}

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
            arguments = json.loads(text)
        except ValueError as problem:
            context["error"] = _("This is not valid JSON: %(problem)s") % {"problem": problem}
            return None
        if not isinstance(arguments, dict):
            context["error"] = _("The arguments must be a JSON object.")
            return None
        return arguments


def _list_entries(alias: str, principal: DjangoPrincipal, kind: Kind) -> list[ListedPrimitive]:
    return [
        ListedPrimitive(str(raw.get("uri") or raw.get("uriTemplate") or raw["name"]), raw)
        for method, key in kind.lists
        for raw in list_all(alias, principal, method, key)
    ]
