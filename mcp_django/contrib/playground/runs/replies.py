"""Replies to questions of a running call, in the handshake era.

The call waits in one process, and the browser's answer may reach another one. It is a response of the client in its
session, so the server routes it as it routes the responses of other clients.
"""

from collections.abc import Mapping
from typing import Any

from asgiref.sync import async_to_sync
from django.http import HttpRequest, JsonResponse
from django.middleware.csrf import get_token
from django.utils.translation import gettext as _

from mcp_django import wiring
from mcp_django.admin.base import log_act
from mcp_django.contrib.playground.messages import format_json
from mcp_django.contrib.playground.models import Playground
from mcp_django.contrib.playground.runs.operations import OPERATION_SECONDS, RunTarget, get_run_sealer
from mcp_django.contrib.playground.runs.questions import ServerQuestion, build_questions
from mcp_django.contrib.playground.runs.wire import LiveQuestion
from mcp_django.extensions.calls import Connection, Pipeline
from mcp_django.extensions.errors import InvalidParams
from mcp_django.extensions.html_pages import render_clean
from mcp_django.transports.inprocess.exchange import send_message

REPLY = "reply"
"""Value of `act` of a form that answers a question of a running call."""
QUESTIONS_TEMPLATE = "mcp_playground/questions.html"
REFUSAL: Mapping[str, Any] = {"code": -1, "message": "The user refused the request"}
"""Error of a client whose user refuses a request, in the words of its revision."""


def render_live_question(question: LiveQuestion, target: RunTarget, operator: Any, csrf_token: str) -> str:
    """Return the form of a question. Its token names the session, and opens for the operator only."""
    token = get_run_sealer().seal(
        {"session": question.session_key, "request": question.request},
        target.build_binding(operator, REPLY),
        ttl=OPERATION_SECONDS,
    )
    return _render(build_questions({"": question.request}), token, csrf_token, target)


def build_reply(request: HttpRequest, target: RunTarget) -> JsonResponse:
    """Send the answer of a form to the session that waits for it. Blocks.

    The response has the sent message, or the form again with its errors, or an error.
    """
    token = request.POST.get("reply", "")
    try:
        payload = get_run_sealer().unseal(token, target.build_binding(request.user, REPLY))
    except InvalidParams:
        return JsonResponse({"error": _("This question has expired, or belongs to another tool or user.")}, status=400)

    (question,) = questions = build_questions({"": payload["request"]}, request.POST)
    if not question.is_valid():
        return JsonResponse({"html": _render(questions, token, get_token(request), target)})

    id, result = payload["request"]["id"], question.build_result()
    response: dict[str, Any] = {"jsonrpc": "2.0", "id": id}
    response |= {"error": dict(REFUSAL)} if result is None else {"result": result}
    log_act(request, Playground, target.label, f"Answered in the playground as {target.username}.")
    if not async_to_sync(_deliver)(target, payload["session"], response):
        return JsonResponse({"error": _("The call has ended already.")}, status=410)
    title = "error" if result is None else "result"
    return JsonResponse({"kind": "message", "sent": True, "title": title, "text": format_json(response)})


async def _deliver(target: RunTarget, session_key: str, response: dict[str, Any]) -> bool:
    """Pass a response to the server. Returns False without its session."""
    server = wiring.get_server(target.alias)
    session = await server.ports.sessions.load(session_key, target.principal.key)
    if session is None:
        return False
    pipeline = Pipeline(server)
    await send_message(pipeline, pipeline.handshake, response, Connection(target.principal, session=session))
    return True


def _render(questions: list[ServerQuestion], token: str, csrf_token: str, target: RunTarget) -> str:
    return render_clean(
        QUESTIONS_TEMPLATE,
        {
            "questions": questions,
            "reply": token,
            "csrf_token": csrf_token,
            "acting_name": target.username,
            "query": target.query,
        },
    )
