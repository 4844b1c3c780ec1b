"""Rounds of an operation: request, answer, and the questions for the next round.

The server keeps no state between two rounds. The browser holds the sealed operation and the `requestState` of the
server, and each round is a POST, which any worker may receive.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from asgiref.sync import async_to_sync
from django.core.exceptions import PermissionDenied
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, StreamingHttpResponse
from django.middleware.csrf import get_token
from django.utils import translation
from django.utils.http import urlencode
from django.utils.translation import gettext as _

from mcp_django.admin.base import log_act
from mcp_django.conf import get_settings
from mcp_django.contrib.playground.content_blocks import list_blocks
from mcp_django.contrib.playground.copies import build_copies
from mcp_django.contrib.playground.forms.schema_forms import build_filled_form
from mcp_django.contrib.playground.hosted_apps import can_host_apps, find_host_extensions
from mcp_django.contrib.playground.messages import OVERLOADED_CODE, Exchange, format_json
from mcp_django.contrib.playground.models import Playground
from mcp_django.contrib.playground.page_state import PageState
from mcp_django.contrib.playground.runs.endpoint_requests import EndpointRequest
from mcp_django.contrib.playground.runs.operations import (
    Operation,
    RunTarget,
    seal_operation,
    unseal_operation,
)
from mcp_django.contrib.playground.runs.operator_access import (
    AccessLost,
    AccessMonitor,
    OperatorAccess,
)
from mcp_django.contrib.playground.runs.questions import ServerQuestion, build_questions
from mcp_django.contrib.playground.runs.replies import REFUSAL, render_live_question
from mcp_django.contrib.playground.runs.simulated_clients import SimulatedClient
from mcp_django.contrib.playground.runs.streams import MEDIA_TYPE, Send, build_stream
from mcp_django.contrib.playground.runs.wire import LiveQuestion, RunObserver, WireMessage, WireRun
from mcp_django.extensions.calls import jsonrpc
from mcp_django.extensions.conversations import INPUT_REQUIRED, StateTooLarge
from mcp_django.extensions.errors import InvalidParams
from mcp_django.extensions.html_pages import render_clean
from mcp_django.protocol.display_text import clean_line, clean_text
from mcp_django.protocol.revisions import LATEST
from mcp_django.protocol.types import LOG_LEVELS
from mcp_django.transports.inprocess.profile import DEFAULT_LOG_LEVEL

SHOW, ANSWER = "show", "answer"
"""Values of `act`: show the message and send nothing, and answer the questions of a round."""
RESULT_TEMPLATE = "mcp_playground/result.html"
PART_TEMPLATES = {
    "playground-call": "mcp_playground/call.html",
    "playground-copies": "mcp_playground/copies.html",
}
"""Templates of parts of the page, by the ids of their elements."""
MAX_VERSION_CHARACTERS = 64
JSONObject = dict[str, Any]


class OperationRound:
    """Request of a round, and its answer after `run`."""

    def __init__(self, request: HttpRequest, target: RunTarget, operation: Operation) -> None:
        self.target = target
        self.operation = operation
        self.is_streamed = accepts_stream(request)
        can_reply = self.is_streamed and isinstance(request, ASGIRequest)
        extensions = find_host_extensions(target.entry, operation.app)
        profile = SimulatedClient(operation.version, operation.log_level, extensions=extensions)
        self.profile = profile._replace(answers=can_reply or not profile.has_handshake)
        self.exchange: Exchange | None = None
        self.questions: list[ServerQuestion] = []
        """Questions of the server, which the next round answers."""
        self.request_state: str | None = None
        """State of the server that the next round returns."""
        self.is_refused = False
        """True if the user refused a question that has no answer for this."""
        self.page: PageState | None = None
        """State of the page, for the parts of it that a first round changes."""
        self._next = operation
        self._operator = request.user
        self._access = OperatorAccess(request, target)
        self._language = translation.get_language()
        self._csrf_token = get_token(request)
        self._earlier = _read_history(request.POST.get("history", ""))
        self._wire = WireRun(
            target.alias,
            target.principal,
            self.profile,
            make_request=partial(EndpointRequest, request, target.alias),
        )

    def build_message(self, **round_params: Any) -> JSONObject:
        """Return the request of the round."""
        params = {**self.operation.params, **round_params}
        return self.profile.build_request(self.target.kind.method, params, self.operation.number)

    async def run(self, message: Mapping[str, Any], observer: RunObserver) -> None:
        """Send the request and wait for its answer. Raises AccessLost."""
        self.questions = []
        self.request_state = None
        async with AccessMonitor(self._access):
            self.exchange = await self._wire.run(message, observer)
        result = self.exchange.result
        if result is not None and result.get("resultType") == INPUT_REQUIRED:
            requests = result.get("inputRequests", {})
            self.request_state = result.get("requestState")
            self._next = self.operation._replace(number=self.operation.number + 1, requests=requests)
            self.questions = build_questions(requests)

    async def stream(self, message: Mapping[str, Any], send: Send) -> None:
        """Send the request, and the events of the run to the browser."""
        number = self.operation.number

        async def on_message(found: WireMessage) -> None:
            effect = _describe_notification(found.message)
            if found.is_listed:
                await send({**_describe(number, found), **effect})
            elif effect:
                await send({"kind": "notification", **effect})

        async def on_question(question: LiveQuestion) -> None:
            with translation.override(self._language):
                html = render_live_question(question, self.target, self._operator, self._csrf_token)
            await send({"kind": "question", "id": question.request["id"], "html": html})

        try:
            await self.run(message, RunObserver(on_message, on_question))
        except AccessLost:
            await send({"kind": "revoked"})
            return
        with translation.override(self._language):
            end = {**self.build_end(), **self._render_page_parts()}
        await send(end)

    def _render_page_parts(self) -> JSONObject:
        """Return the parts of the page about the call, and the errors at the fields of its form."""
        if self.page is None or self.page.form is None:
            return {}
        form, context = self.page.form, self.page.build_context()
        if form.is_bound and self.exchange is not None:
            form.add_server_errors(self.exchange.error_text)
        return {
            "parts": {name: render_clean(template, context) for name, template in PART_TEMPLATES.items()},
            "errors": {form.add_prefix(name): list(map(str, found)) for name, found in form.errors.items()},
        }

    def complete(self, message: Mapping[str, Any]) -> JSONObject:
        """Send the request, and return the context of the page. Blocks. Raises PermissionDenied."""
        try:
            async_to_sync(self.run)(message, RunObserver(_ignore, _ignore))
        except AccessLost:
            raise PermissionDenied(_("You may no longer use the playground. The call was cancelled.")) from None
        return self.build_context()

    def build_end(self) -> JSONObject:
        """Return the last event: the result or the questions for the page, or the response for an app."""
        context = self.build_context()
        response = self._find_app_response(context) if self.operation.app else None
        if response is not None:
            return {"kind": "end", "html": "", "response": response}
        return {"kind": "end", "html": render_clean(RESULT_TEMPLATE, {**context, "csrf_token": self._csrf_token})}

    def _find_app_response(self, context: Mapping[str, Any]) -> JSONObject | None:
        """Return the response for the app that sent the request; None while questions wait for the operator."""
        if self.is_refused:
            return {"error": dict(REFUSAL)}
        if "is_too_large" in context:
            return {"error": {"code": OVERLOADED_CODE, "message": "The questions are too large"}}
        if self.exchange is None or self.questions or self.request_state is not None:
            return None
        return {"result": self.exchange.result} if self.exchange.error is None else {"error": self.exchange.error}

    def build_context(self) -> JSONObject:
        """Return the context of the result."""
        context: JSONObject = {
            "exchange": self.exchange,
            "questions": self.questions,
            "request_state": self.request_state,
            "is_refused": self.is_refused,
            "acting_name": self.target.username,
            "query": self.target.query,
        }
        if self.exchange is not None and self.exchange.result is not None:
            context["blocks"] = list_blocks(self.exchange.result)
            context |= self._build_app_context(self.exchange.result)
        if self.request_state is not None or self.questions:
            try:
                context["operation"] = seal_operation(self._next, self.target, self._operator)
            except StateTooLarge:
                context |= {"questions": [], "request_state": None, "is_too_large": True}
        if not self.is_streamed:
            messages = [*self._earlier, *(_describe(self.operation.number, found) for found in self._wire.messages)]
            context |= {"wire_messages": messages, "history": json.dumps(messages)}
        return context

    def _build_app_context(self, result: Mapping[str, Any]) -> JSONObject:
        """Return the data with which the script of the page shows the app of a tool, after the last round."""
        entry, operation = self.target.entry, self.operation
        if entry.app_uri is None or operation.app or result.get("resultType") == INPUT_REQUIRED or not can_host_apps():
            return {}
        query = {"server": self.target.alias, "as": self.target.username}
        data = {
            "source": f"app/?{urlencode({**query, 'name': entry.key})}",
            "query": query,
            "tool": entry.raw,
            "input": operation.params["arguments"],
            "result": result,
            "revision": operation.version,
            "log_level": operation.log_level,
        }
        return {"app_data": data}


def read_operation(request: HttpRequest, params: Mapping[str, Any]) -> Operation:
    """Return the operation of a form: its revision, its log level, and whether the operator confirmed it."""
    level = request.POST.get("log_level", DEFAULT_LOG_LEVEL)
    return Operation(
        params,
        str(request.POST.get("revision") or LATEST.version)[:MAX_VERSION_CHARACTERS],
        level if level in LOG_LEVELS else "",
        is_confirmed=request.POST.get("confirmed") == "on",
    )


def run_operation(
    request: HttpRequest, target: RunTarget, arguments: Mapping[str, Any], state: PageState
) -> StreamingHttpResponse | PageState:
    """Return the state of the page with the message of a form and its copies.

    Sends the message, unless it is shown only. The script of the page gets a stream in place of the state.
    """
    operation = read_operation(request, target.entry.build_params(arguments))
    run = OperationRound(request, target, operation)
    message = run.build_message()
    latest = run.profile._replace(version=LATEST.version, answers=True)
    url = request.build_absolute_uri("/" + get_settings().servers[target.alias].path.lstrip("/"))
    copied = latest.build_request(target.kind.method, operation.params) if run.profile.has_handshake else message
    state = replace(
        state,
        arguments=format_json(arguments),
        message=format_json(message),
        copies=build_copies(url, target.alias, target.username, copied),
    )
    if request.POST.get("act") == SHOW:
        return state
    if target.entry.may_write and not operation.is_confirmed:
        return replace(state, error=_("This tool may write. Tick the box to run it."))
    log_act(request, Playground, target.label, f"Sent in the playground as {target.username}.")
    run.page = state
    return _send(request, run, message, state)


def answer_questions(request: HttpRequest, target: RunTarget, state: PageState) -> StreamingHttpResponse | PageState:
    """Send the answers of a form as the next round. Invalid answers are shown again, and nothing is sent."""
    try:
        operation = unseal_operation(request.POST.get("operation"), target, request.user)
    except InvalidParams:
        error = _("This run has expired, or belongs to another tool or user. Send it again.")
        return replace(state, error=error)
    if target.entry.may_write and not operation.is_confirmed:
        return replace(state, error=_("This tool may write. Tick the box to run it."))

    filled = build_filled_form(target.entry.build_schema(), operation.params.get("arguments", operation.params))
    state = replace(state, form=filled or state.form, revision=operation.version, log_level=operation.log_level)
    run = OperationRound(request, target, operation)
    run.request_state = request.POST.get("request_state")
    run.questions = questions = build_questions(operation.requests, request.POST)
    wrong = [question for question in questions if not question.is_valid()]
    if wrong:
        return _show(request, run, state)
    results = {question.key: question.build_result() for question in questions}
    if None in results.values():
        run.questions = []
        run.request_state = None
        run.is_refused = True
        return _show(request, run, state)

    log_act(request, Playground, target.label, f"Answered in the playground as {target.username}.")
    extra: JSONObject = {"inputResponses": results} if results else {}
    if run.request_state is not None:
        extra["requestState"] = run.request_state
    message = run.build_message(**extra)
    return _send(request, run, message, replace(state, message=format_json(message)))


def accepts_stream(request: HttpRequest) -> bool:
    """Return True if the browser's script reads the events of a run."""
    return MEDIA_TYPE in request.headers.get("Accept", "")


def _send(
    request: HttpRequest, run: OperationRound, message: JSONObject, state: PageState
) -> StreamingHttpResponse | PageState:
    if run.is_streamed:
        return build_stream(request, partial(run.stream, message))
    return replace(state, details=run.complete(message))


def _show(request: HttpRequest, run: OperationRound, state: PageState) -> StreamingHttpResponse | PageState:
    """Return the state of a round whose answers were not sent."""
    if not run.is_streamed:
        return replace(state, details=run.build_context())
    end = run.build_end()

    async def produce(send: Send) -> None:
        await send(end)

    return build_stream(request, produce)


def _describe(number: int, found: WireMessage) -> JSONObject:
    """Return a message for the browser."""
    return {
        "kind": "message",
        "round": number,
        "sent": found.is_sent,
        "ms": found.milliseconds,
        "title": found.title,
        "text": found.text,
    }


def _describe_notification(message: Mapping[str, Any]) -> JSONObject:
    """Return the effect of a notification on the page; empty for most."""
    params = message.get("params")
    if not isinstance(params, Mapping):
        return {}
    if message.get("method") == "notifications/progress":
        text = params.get("message")
        shown = clean_line(text) if isinstance(text, str) else text
        return {"progress": {"progress": params.get("progress"), "total": params.get("total"), "message": shown}}
    if message.get("method") == "notifications/cancelled":
        return {"withdrawn": params.get("requestId")}
    if message.get("method") == "notifications/message":
        data = params.get("data")
        text = data if isinstance(data, str) else format_json(data)
        return {"log": clean_text(f"{params.get('level')}: {text}")}
    return {}


def _read_history(text: str) -> list[JSONObject]:
    """Return the messages of earlier rounds, which the browser holds. They are shown, and nothing else."""
    try:
        found = jsonrpc.loads_exactly(text) if text else []
    except ValueError:
        return []
    names = {"kind", "round", "sent", "ms", "title", "text"}
    return (
        [each for each in found if isinstance(each, dict) and each.keys() == names] if isinstance(found, list) else []
    )


async def _ignore(event: object) -> None:
    """Ignore an event: the page shows all of them at the end."""
