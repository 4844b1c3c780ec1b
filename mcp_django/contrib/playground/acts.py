"""Acts of the page on an entry.

Each act returns a response, or the state of the page that shows the entry.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.utils.http import urlencode

from mcp_django.admin.base import log_act
from mcp_django.contrib.playground.entry_forms import build_form_state, parse_arguments
from mcp_django.contrib.playground.forms.schema_forms import ArgumentsForm, build_filled_form
from mcp_django.contrib.playground.forms.suggestions import (
    SUGGEST,
    can_suggest,
    load_suggestions,
    offer_suggestions,
)
from mcp_django.contrib.playground.hosted_apps import build_preview_link, can_host_apps
from mcp_django.contrib.playground.links import build_call_link, remove_secrets
from mcp_django.contrib.playground.models import Playground
from mcp_django.contrib.playground.page_state import PageState
from mcp_django.contrib.playground.runs.app_calls import APP, build_app_run
from mcp_django.contrib.playground.runs.operations import RunTarget
from mcp_django.contrib.playground.runs.replies import REPLY, build_reply
from mcp_django.contrib.playground.runs.rounds import ANSWER, SHOW, answer_questions, run_operation
from mcp_django.contrib.playground.skills import FILE_PARAMETER, build_skill_state
from mcp_django.protocol.skills import SKILLS_IDENTIFIER

SEND, SEND_JSON = "send", "send_json"


class EntryRequest(NamedTuple):
    """Request of the page for an entry."""

    http: HttpRequest
    target: RunTarget
    capabilities: Mapping[str, Any]
    """Capabilities of the server."""

    @property
    def query(self) -> dict[str, str]:
        """Query of the URL of the entry."""
        alias, _principal, kind, entry = self.target
        return {"server": alias, "kind": kind.name, "as": self.target.username, "name": entry.key}


ActResult = HttpResponseBase | PageState


def perform_act(request: EntryRequest) -> ActResult:
    """Perform the act of a POST; show the entry for other requests and for unknown acts."""
    act = request.http.POST.get("act", "") if request.http.method == "POST" else ""
    if act != APP and request.target.kind.extension == SKILLS_IDENTIFIER:
        return show_skill(request)
    if SUGGEST in request.http.POST and request.http.headers.get("Accept") == "application/json":
        return suggest_values(request)
    return ACTS.get(act, show_entry)(request)


def show_entry(request: EntryRequest) -> PageState:
    """Show the form: with its defaults, the arguments of a link, or suggestions for the entered values."""
    return _build_state(request, is_typed=SUGGEST in request.http.POST)


def show_skill(request: EntryRequest) -> PageState:
    """Show the files of a skill. A read file is noted in the admin's log."""
    chosen, target = request.http.GET.get(FILE_PARAMETER, ""), request.target
    if chosen:
        subject = f"resources/read {target.entry.key} {chosen} ({target.alias})"
        log_act(request.http, Playground, subject, describe_act(target.username))
    return build_skill_state(target.alias, target.principal, target.entry.wire, request.query, chosen)


def suggest_values(request: EntryRequest) -> HttpResponse:
    """Return suggestions for one argument, for the script of the page."""
    name = request.http.POST.get(SUGGEST, "")
    form = build_form_state(request.http, request.target.entry, request.query, is_typed=True).form
    return JsonResponse({"values": _load_suggestions(request, form, name).get(name, [])})


def run_form(request: EntryRequest) -> ActResult:
    """Send the arguments of the form, or show their message."""
    state = _build_state(request, is_typed=True)
    if state.form is None or not state.form.is_valid():
        return state
    try:
        arguments = state.form.build_arguments()
        params = request.target.entry.build_params(arguments)
    except ValueError as problem:
        return replace(state, error=str(problem))
    return _run(request, state, arguments, params)


def run_json(request: EntryRequest) -> ActResult:
    """Send the arguments of a JSON text, valid or not."""
    state = _build_state(request, is_typed=False)
    text = request.http.POST.get("arguments", "")
    try:
        arguments = parse_arguments(text)
        params = request.target.entry.build_params(arguments)
    except ValueError as problem:
        return replace(state, error=str(problem), arguments=text)
    result = _run(request, state, arguments, params)
    if not isinstance(result, PageState):
        return result
    filled = build_filled_form(request.target.entry.build_schema(), arguments)
    return result if filled is None else _add_server_errors(replace(result, form=filled))


def answer_round(request: EntryRequest) -> ActResult:
    """Send the answers to the questions of a round."""
    return answer_questions(request.http, request.target, _build_state(request, is_typed=False))


def reply_to_call(request: EntryRequest) -> HttpResponse:
    """Send the answer to a question of a running call."""
    return build_reply(request.http, request.target)


def run_app(request: EntryRequest) -> HttpResponseBase:
    """Send the request of an app that the page shows."""
    return build_app_run(request.http, request.target)


ACTS: Mapping[str, Callable[[EntryRequest], ActResult]] = {
    SHOW: run_form,
    SEND: run_form,
    SEND_JSON: run_json,
    ANSWER: answer_round,
    REPLY: reply_to_call,
    APP: run_app,
}
"""Functions by the value of `act` in a POST."""


def describe_act(username: str) -> str:
    """Return the text for the log of the admin."""
    return f"Sent in the playground as {username}."


def _build_state(request: EntryRequest, *, is_typed: bool) -> PageState:
    """Return the form with its links and suggestions. `is_typed` fills it with the values of the POST."""
    state = build_form_state(request.http, request.target.entry, request.query, is_typed=is_typed)
    if state.form is not None and can_suggest(request.target.entry, request.capabilities):
        name = request.http.POST.get(SUGGEST)
        offer_suggestions(state.form, _load_suggestions(request, state.form, name))
    return _add_links(request, state, {})


def _load_suggestions(request: EntryRequest, form: ArgumentsForm | None, name: str | None) -> dict[str, list[str]]:
    target = request.target
    if form is None or not can_suggest(target.entry, request.capabilities):
        return {}
    return load_suggestions(target.alias, target.principal, target.entry, form, name)


def _add_links(request: EntryRequest, state: PageState, arguments: Mapping[str, Any]) -> PageState:
    """Return the state with the links to the entry, to the call, and to the preview of an app."""
    entry, schema = request.target.entry, request.target.entry.build_schema()
    state = replace(state, entry_url=f"?{urlencode(request.query)}")
    if arguments or request.http.method == "POST":
        state = replace(state, call_link=build_call_link(request.query, schema, arguments))
    if entry.app_uri is None:
        return state
    shown = remove_secrets(schema, arguments)
    return replace(
        state,
        hosts_app=can_host_apps(),
        acts_alone=request.target.principal.user.pk == request.http.user.pk,
        preview_link=build_preview_link(request.http, request.target.alias, entry.key, shown),
    )


def _run(request: EntryRequest, state: PageState, arguments: Mapping[str, Any], params: Mapping[str, Any]) -> ActResult:
    """Run the entry with these arguments. `params` are those of its request."""
    state = _add_links(request, state, arguments)
    if request.target.entry.template is not None:
        state = replace(state, uri=params["uri"])
    result = run_operation(request.http, request.target, arguments, state)
    return _add_server_errors(result) if isinstance(result, PageState) else result


def _add_server_errors(state: PageState) -> PageState:
    """Add the errors of the answer to the fields that they name."""
    exchange = state.details.get("exchange")
    if state.form is not None and state.form.is_bound and exchange is not None:
        state.form.add_server_errors(exchange.error_text)
    return state
