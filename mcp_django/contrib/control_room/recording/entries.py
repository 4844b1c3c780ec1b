"""Facts of one call, in the form in which they wait until they are written.

Arguments that the settings do not allow are dropped here, before anything is kept.
"""

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

from mcp_django.contrib.control_room.models import KEY_CHARACTERS, NAME_CHARACTERS, UNKNOWN_NAME
from mcp_django.contrib.control_room.options import RecordSettings
from mcp_django.observability import Call, Outcome
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import MCPError, MethodNotFound
from mcp_django.protocol.headers import NAMED_PARAMS
from mcp_django.runtime.calls.observer import get_error_code
from mcp_django.server.calls.log_sanitizer import (
    get_call_id_label,
    get_session_label,
    get_trace_id,
    sanitize_label,
    sanitize_uri,
)
from mcp_django.server.ports import Overloaded, Principal

MAX_ARGUMENT_CHARACTERS = 1000
"""Maximum characters of the JSON of one argument.

Of longer ones, the length is kept.
"""
ATTEMPT_METHOD = "tasks/attempt"
"""Method of a run of a task, which is no message of a client."""
FAILED_OUTCOMES = frozenset(Outcome) - {Outcome.OK, Outcome.INPUT_REQUIRED}
"""Outcomes of calls that count as failed."""


class CallDetail(NamedTuple):
    """Facts for the row of one call."""

    error_code: int | None
    reference: str
    client: str
    revision: str
    session: str
    call_id: str
    trace_id: str
    arguments: str


class CallEntry(NamedTuple):
    """Finished call."""

    at: float
    """Seconds since the epoch."""
    server: str
    method: str
    target: str | None
    """Key of the tool, prompt, resource or template; None if it is unknown."""
    outcome: Outcome
    seconds: float
    principal: Principal
    detail: CallDetail | None
    """None if the call gets no row of its own."""
    client_info: Mapping[str, Any] = MappingProxyType({})
    """Name and version that the client sent."""

    @property
    def name(self) -> str:
        """Return the name of the target in rows."""
        return get_name(self.method, self.target)


def get_method(call: Call, error: MCPError | Overloaded | None) -> str:
    """Return the method of a call.

    Methods that the server does not know share one name.
    """
    if call.record.is_continued and call.method == "tools/call":
        return ATTEMPT_METHOD
    return UNKNOWN_NAME if error is not None and isinstance(error, MethodNotFound) else call.message.method


@lru_cache(maxsize=4096)
def get_name(method: str, target: str | None) -> str:
    """Return the tool, prompt or resource of a call.

    A resource of a template has the name of the template. Names that the server does not know share one name.
    """
    if target is None:
        return UNKNOWN_NAME if method in NAMED_PARAMS else ""
    name = sanitize_uri(target) if method == "resources/read" else sanitize_label(target)
    return name[:NAME_CHARACTERS]


def build_detail(call: Call, error: MCPError | Overloaded | None, options: RecordSettings) -> CallDetail:
    """Return the facts for the row of a call."""
    return CallDetail(
        error_code=get_error_code(call, error),
        reference=(call.record.reference or "")[:64],
        client=get_client_label(call.client_info),
        revision=call.revision.version,
        session=get_session_label(call) or "",
        call_id=(get_call_id_label(call) or "")[:NAME_CHARACTERS],
        trace_id=(get_trace_id(call) or "")[:32],
        arguments=_build_arguments(call, options),
    )


def get_user_key(principal: Principal) -> str:
    """Return the primary key of the caller's user as text, or an empty text."""
    key = getattr(principal.user, "pk", None)
    return "" if key is None else str(key)[:64]


def get_client_label(client_info: Mapping[str, Any]) -> str:
    """Return the name and the version that the client sent."""
    parts = [part for part in (client_info.get("name"), client_info.get("version")) if isinstance(part, str)]
    return sanitize_label(" ".join(parts))[:KEY_CHARACTERS]


def _build_arguments(call: Call, options: RecordSettings) -> str:
    recording = options.tools.get(call.record.target or "")
    sent = call.params.get("arguments")
    if recording is None or not recording.arguments or call.method != "tools/call" or type(sent) is not dict:
        return ""
    kept = {name: _shorten(sent[name]) for name in recording.arguments if name in sent}
    return jsonrpc.dumps(kept).decode() if kept else ""


def _shorten(value: Any) -> Any:
    characters = len(jsonrpc.dumps(value).decode())
    return value if characters <= MAX_ARGUMENT_CHARACTERS else f"({characters} characters)"
