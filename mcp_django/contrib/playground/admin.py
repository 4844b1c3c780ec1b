"""Page of the playground in the admin.

The server keeps no state: everything is in the URL and the form.
"""

from collections.abc import Mapping
from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.core.handlers.asgi import ASGIRequest
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.http import urlencode
from django.utils.text import capfirst

from mcp_django import wiring
from mcp_django.admin.access.page import ACCESS_PERMISSION
from mcp_django.admin.base import BaseAdmin, log_act
from mcp_django.auth.principal import DjangoPrincipal
from mcp_django.contrib.playground.entry_forms import build_form_context, parse_arguments
from mcp_django.contrib.playground.forms.schema_forms import ArgumentsForm, build_filled_form
from mcp_django.contrib.playground.forms.suggestions import (
    SUGGEST,
    can_suggest,
    load_suggestions,
    offer_suggestions,
)
from mcp_django.contrib.playground.hosted_apps import (
    build_app_document,
    build_preview_link,
    can_host_apps,
)
from mcp_django.contrib.playground.links import build_call_link, remove_secrets
from mcp_django.contrib.playground.models import Playground, is_playground_enabled
from mcp_django.contrib.playground.primitives import (
    KINDS,
    Kind,
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
from mcp_django.contrib.playground.runs.app_calls import APP, build_app_run
from mcp_django.contrib.playground.runs.operations import RunTarget
from mcp_django.contrib.playground.runs.replies import REPLY, build_reply
from mcp_django.contrib.playground.runs.rounds import (
    ANSWER,
    SHOW,
    build_answer_context,
    build_run_context,
)
from mcp_django.contrib.playground.skills import FILE_PARAMETER, build_skill_context
from mcp_django.protocol.revisions import LATEST, REVISIONS
from mcp_django.protocol.skills import SKILLS_IDENTIFIER
from mcp_django.protocol.types import LOG_LEVELS
from mcp_django.transports.inprocess.profile import DEFAULT_LOG_LEVEL

SEND, SEND_JSON = "send", "send_json"


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
        """Show the lists and a form; send the request of a POST."""
        self._check_access(request)
        alias, kind = self._read_place(request)
        user, principal = self._find_principal(request)
        capabilities = load_capabilities(alias, principal)
        entries = list_entries(alias, principal, kind)
        entry = find_entry(entries, kind, request.GET.get("name"))

        act = request.POST.get("act", "") if request.method == "POST" else ""
        context = self._build_page_context(request, alias, kind, user)
        context |= {"kinds": list_kinds(capabilities), "entries": entries, "entry": entry}
        if entry is not None:
            target = RunTarget(alias, principal, kind, entry)
            if act == APP:
                context["response"] = build_app_run(request, target)
            else:
                context |= self._build_entry_context(request, act, target, capabilities)
        response: HttpResponse | None = context.get("response")
        if response is None:
            is_allowed = request.user.has_perm(ACCESS_PERMISSION)
            hidden = list_hidden_entries(alias, principal, kind, entries) if is_allowed else []
            context["list_rows"] = build_list_rows(entries, hidden, context["filter_text"])
            response = TemplateResponse(request, "mcp_playground/playground.html", context | (extra_context or {}))
        response["Cache-Control"] = "no-store"
        return response

    def app_view(self, request: HttpRequest) -> HttpResponse:
        """Return the document of the app of a tool for its frame, as the acting user reads it."""
        self._check_access(request)
        alias, kind = self._read_place(request)
        user, principal = self._find_principal(request)
        entry = find_entry(list_entries(alias, principal, kind), kind, request.GET.get("name"))
        if entry is None or entry.app_uri is None or not can_host_apps():
            raise Http404("The acting user sees no app of this tool")
        log_act(request, Playground, f"resources/read {entry.app_uri} ({alias})", _describe_act(user.get_username()))
        return build_app_document(alias, principal, entry.app_uri)

    def _check_access(self, request: HttpRequest) -> None:
        """Raise Http404 without a playground, and PermissionDenied for a user who may not use it."""
        if not is_playground_enabled():
            raise Http404("The playground is off")
        if not self.has_view_permission(request):
            raise PermissionDenied

    def _find_principal(self, request: HttpRequest) -> tuple[Any, DjangoPrincipal]:
        """Return the acting user and the principal. Raises PermissionDenied."""
        user = find_acting_user(request.user, request.GET.get("as", "").strip())
        return user, build_principal(user, request.user)

    def _read_place(self, request: HttpRequest) -> tuple[str, Kind]:
        aliases = wiring.list_aliases()
        alias = request.GET.get("server", aliases[0])
        if alias not in aliases:
            raise Http404("Unknown server")
        return alias, KINDS.get(request.GET.get("kind", ""), KINDS["tools"])

    def _build_page_context(self, request: HttpRequest, alias: str, kind: Kind, user: Any) -> dict[str, Any]:
        return self.build_context(
            request,
            title=capfirst(str(self.opts.verbose_name)),
            home_url=reverse(f"{self.admin_site.name}:index"),
            server=alias,
            servers=wiring.list_aliases(),
            kind=kind,
            acting_name=user.get_username(),
            may_act=request.user.has_perm(ACT_PERMISSION),
            query=urlencode({"server": alias, "as": user.get_username()}),
            filter_text=request.GET.get("q", "").strip(),
            revisions=list(reversed(REVISIONS)),
            revision=request.POST.get("revision", LATEST.version),
            log_levels=LOG_LEVELS,
            log_level=request.POST.get("log_level", DEFAULT_LOG_LEVEL),
            can_reply=isinstance(request, ASGIRequest),
        )

    def _build_entry_context(
        self, request: HttpRequest, act: str, target: RunTarget, capabilities: Mapping[str, Any]
    ) -> dict[str, Any]:
        entry = target.entry
        if target.kind.extension == SKILLS_IDENTIFIER:
            return self._build_skill_context(request, target)
        suggested = request.POST.get(SUGGEST)
        is_typed = act in (SHOW, SEND) or suggested is not None
        context = build_form_context(request, entry, _build_query(target), is_typed=is_typed)
        context |= self._build_link_context(request, target, {})
        form: ArgumentsForm = context["form"]
        if can_suggest(entry, capabilities):
            found = load_suggestions(target.alias, target.principal, entry, form, suggested)
            if request.headers.get("Accept") == "application/json":
                return {"response": JsonResponse({"values": found.get(suggested or "", [])})}
            offer_suggestions(form, found)
        if act == REPLY:
            return {"response": build_reply(request, target)}
        if act == ANSWER:
            return context | build_answer_context(request, target)
        try:
            arguments = self._read_arguments(request, act, form)
            params = {} if arguments is None else entry.build_params(arguments)
        except ValueError as problem:
            return context | {"error": str(problem), "arguments": request.POST.get("arguments", "")}
        if arguments is None:
            return context

        context |= self._build_link_context(request, target, arguments)
        context |= {"uri": params["uri"]} if entry.template is not None else {}
        context |= build_run_context(request, target, arguments, context)
        if act == SEND_JSON:
            context["form"] = form = build_filled_form(entry.build_schema(), arguments) or form
        if form.is_bound and "exchange" in context:
            form.add_server_errors(context["exchange"].error_text)
        return context

    def _build_skill_context(self, request: HttpRequest, target: RunTarget) -> dict[str, Any]:
        """Return the files of a skill. A read file is noted in the admin's log."""
        chosen, user = request.GET.get(FILE_PARAMETER, ""), target.principal.user.get_username()
        if chosen:
            subject = f"resources/read {target.entry.key} {chosen} ({target.alias})"
            log_act(request, Playground, subject, _describe_act(user))
        return build_skill_context(*target[:2], target.entry.wire, _build_query(target), chosen)

    def _build_link_context(self, request: HttpRequest, target: RunTarget, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the links to the entry, to the call, and to the preview of an app."""
        entry, user = target.entry, target.principal.user
        query = _build_query(target)
        schema = entry.build_schema()
        context: dict[str, Any] = {"entry_url": f"?{urlencode(query)}"}
        if arguments or request.method == "POST":
            context["call_link"] = build_call_link(query, schema, arguments)
        if entry.app_uri is not None:
            context["hosts_app"] = can_host_apps()
            context["acts_alone"] = user.pk == request.user.pk
            context["preview_link"] = build_preview_link(
                request, target.alias, entry.key, remove_secrets(schema, arguments)
            )
        return context

    def _read_arguments(self, request: HttpRequest, act: str, form: ArgumentsForm) -> dict[str, Any] | None:
        """Return the arguments of a POST; None without valid ones. Raises InvalidArguments."""
        if act in (SHOW, SEND):
            return form.build_arguments() if form.is_valid() else None
        return parse_arguments(request.POST.get("arguments", "")) if act == SEND_JSON else None


def _describe_act(username: str) -> str:
    """Return the text for the log of the admin."""
    return f"Sent in the playground as {username}."


def _build_query(target: RunTarget) -> dict[str, str]:
    """Return the query of the URL of an entry."""
    alias, principal, kind, entry = target
    return {"server": alias, "kind": kind.name, "as": principal.user.get_username(), "name": entry.key}
