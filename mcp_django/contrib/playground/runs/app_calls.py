"""Requests of an app that the page shows, as runs of the playground.

They have the identity, the permissions, the confirmation and the records of a run that the operator starts.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from django.http import Http404, HttpRequest, StreamingHttpResponse
from django.middleware.csrf import get_token

from mcp_django.admin.base import log_act
from mcp_django.contrib.apps.preview.host import is_visible
from mcp_django.contrib.playground.entry_forms import InvalidArguments, parse_arguments
from mcp_django.contrib.playground.messages import format_json
from mcp_django.contrib.playground.models import Playground
from mcp_django.contrib.playground.primitives import KINDS, list_entries
from mcp_django.contrib.playground.runs.operations import RunTarget
from mcp_django.contrib.playground.runs.rounds import OperationRound, read_operation
from mcp_django.contrib.playground.runs.streams import Send, build_stream
from mcp_django.extensions.errors import InvalidParams, MethodNotFound
from mcp_django.extensions.html_pages import render_clean

APP = "app"
"""Value of `act` of a request that an app makes, and name of the field with the tool whose app it is."""
CONFIRMATION_TEMPLATE = "mcp_playground/confirmation.html"
JSONObject = dict[str, Any]


def build_app_run(request: HttpRequest, target: RunTarget) -> StreamingHttpResponse:
    """Return the stream of a request of an app.

    It ends with the response for the app, or with a form for the operator.

    Raises Http404 if the acting user sees no such app.
    """
    app = request.POST.get(APP, "")
    if not _has_app(target, app):
        raise Http404("The acting user sees no app of this tool")
    try:
        params = _read_params(request, target)
    except InvalidArguments as problem:
        return _end(request, {"response": {"error": {"code": InvalidParams.code, "message": str(problem)}}})
    error = _find_error(target)
    if error is not None:
        return _end(request, {"response": {"error": error}})
    operation = read_operation(request, params)._replace(app=app)
    if target.entry.may_write and not operation.is_confirmed:
        return _end(request, {"html": _render_confirmation(request, target, app, params)})

    log_act(request, Playground, target.label, f"Sent by the app of {app} in the playground as {target.username}.")
    run = OperationRound(request, target, operation)
    return build_stream(request, partial(run.stream, run.build_message()))


def _has_app(target: RunTarget, name: str) -> bool:
    tools = list_entries(target.alias, target.principal, KINDS["tools"])
    return any(tool.key == name and tool.app_uri is not None for tool in tools)


def _read_params(request: HttpRequest, target: RunTarget) -> JSONObject:
    """Return the params of the request. Raises InvalidArguments."""
    if target.kind is KINDS["resources"]:
        return {"uri": target.entry.key}
    return {"name": target.entry.key, "arguments": parse_arguments(request.POST.get("arguments", ""))}


def _find_error(target: RunTarget) -> JSONObject | None:
    """Return the error of a request that a host does not pass on, or None."""
    if target.kind not in (KINDS["tools"], KINDS["resources"]):
        return {
            "code": MethodNotFound.code,
            "message": f"An app cannot send {target.kind.method!r} for {target.kind.name}",
        }
    if not is_visible(target.entry.raw, "app"):
        message = f"The tool {target.entry.key!r} is not visible to the app; add it to its visibility"
        return {"code": InvalidParams.code, "message": message}
    return None


def _render_confirmation(request: HttpRequest, target: RunTarget, app: str, params: Mapping[str, Any]) -> str:
    context = {
        "app": app,
        "tool": target.entry.key,
        "acting_name": target.username,
        "arguments": format_json(params["arguments"]),
        "revision": request.POST.get("revision", ""),
        "log_level": request.POST.get("log_level", ""),
        "csrf_token": get_token(request),
    }
    return render_clean(CONFIRMATION_TEMPLATE, context)


def _end(request: HttpRequest, event: JSONObject) -> StreamingHttpResponse:
    """Return a stream with one event."""

    async def produce(send: Send) -> None:
        await send({"kind": "end", "html": "", **event})

    return build_stream(request, produce)
