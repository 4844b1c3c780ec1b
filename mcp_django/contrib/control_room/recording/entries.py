"""Facts of one call, in the form in which they wait until they are written.

Arguments that the settings do not allow are dropped here, before anything is kept.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from mcp_django.contrib.control_room.models import KEY_CHARACTERS, NAME_CHARACTERS, UNKNOWN_NAME, TransportChoices
from mcp_django.contrib.control_room.options import RecordSettings, ToolRecording
from mcp_django.contrib.control_room.recording.timeline import build_timeline
from mcp_django.extensions.calls import Principal, jsonrpc
from mcp_django.extensions.errors import MCPError, MethodNotFound, Overloaded
from mcp_django.observability import Call, Outcome
from mcp_django.protocol.headers import NAMED_PARAMS
from mcp_django.runtime.calls.observer import get_error_code
from mcp_django.server.calls.log_sanitizer import (
    get_call_id_label,
    get_session_label,
    get_trace_id,
    sanitize_label,
    sanitize_uri,
)

MAX_ARGUMENT_CHARACTERS = 1000
"""Maximum characters of the JSON of one argument.

Of longer ones, the length is kept.
"""
ATTEMPT_METHOD = "tasks/attempt"
"""Method of a run of a task, which is no message of a client."""
FAILED_OUTCOMES = frozenset(Outcome) - {Outcome.OK, Outcome.INPUT_REQUIRED}
"""Outcomes of calls that count as failed."""


MAX_LENGTH_DIGITS = 15
"""Maximum digits of a size that is believed."""
CONVERSATION_DIGEST_BYTES = 16
_NO_EXCEPTION = ToolRecording()


class CallDetail(NamedTuple):
    """Facts for the row of one call."""

    error_code: int | None
    reference: str
    actor_key: str
    client: str
    revision: str
    transport: str
    session: str
    call_id: str
    trace_id: str
    conversation: str
    round: int | None
    waited_milliseconds: float
    timeline: str
    request_bytes: int | None
    response_bytes: int | None
    arguments: str


@dataclass(frozen=True, slots=True)
class CallGroup:
    """Facts that calls of one caller with the same target and outcome share."""

    server: str
    method: str
    name: str
    outcome: Outcome
    principal: str
    """Key of the caller."""
    user_key: str = ""
    client: str = ""
    """OAuth client, otherwise the name that the client of the first call sent."""


class CallEntry(NamedTuple):
    """Finished call that gets a row of its own."""

    at: float
    """Seconds since the epoch."""
    group: CallGroup
    seconds: float
    detail: CallDetail


def build_group(call: Call, method: str, outcome: Outcome) -> CallGroup:
    """Return the group of a call."""
    principal = call.connection.principal
    return CallGroup(
        server=call.server.alias,
        method=method,
        name=get_name(method, call.record.target),
        outcome=outcome,
        principal=principal.key,
        user_key=get_user_key(principal),
        client=str(getattr(principal, "client_id", "")) or get_client_label(call.client_info),
    )


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


def build_detail(
    call: Call, error: MCPError | Overloaded | None, seconds: float, options: RecordSettings
) -> CallDetail:
    """Return the facts for the row of a call that took `seconds`."""
    record = call.record
    recording = options.tools.get(record.target or "", _NO_EXCEPTION)
    timeline = build_timeline(record, call.started_at, seconds, recording.questions)
    return CallDetail(
        error_code=get_error_code(call, error),
        reference=(record.reference or "")[:64],
        actor_key=_get_key(getattr(call.principal, "actor", None)),
        client=get_client_label(call.client_info),
        revision=call.revision.version,
        transport=_get_transport(call),
        session=get_session_label(call) or "",
        call_id=(get_call_id_label(call) or "")[:NAME_CHARACTERS],
        trace_id=(get_trace_id(call) or "")[:32],
        conversation="" if record.conversation_id is None else _digest_conversation(record.conversation_id),
        round=record.round or None,
        waited_milliseconds=timeline.waited_milliseconds,
        timeline=timeline.encode(),
        request_bytes=_get_request_bytes(call),
        response_bytes=record.response_bytes,
        arguments=_build_arguments(call, recording),
    )


def has_question(call: Call, outcome: Outcome) -> bool:
    """Return True if a call asked its client, or continues a call that did."""
    record = call.record
    if outcome is Outcome.INPUT_REQUIRED or record.conversation_id is not None:
        return True
    return any(wait.is_question for wait in record.waits)


def get_user_key(principal: Principal) -> str:
    """Return the primary key of the caller's user as text, or an empty text."""
    return _get_key(principal.user)


def _get_key(user: Any) -> str:
    key = getattr(user, "pk", None)
    return "" if key is None else str(key)[:64]


def _get_transport(call: Call) -> str:
    network = call.connection.network
    if network is None:
        return TransportChoices.PROCESS.value
    return (network.protocol or TransportChoices.STDIO.value)[:16]


def _get_request_bytes(call: Call) -> int | None:
    """Return the size that the headers of the request give; None without it, or for a part of a batch."""
    headers = call.connection.message_headers
    length = b"" if headers is None or call.revision.batches else headers.wire.get(b"content-length", b"")
    return int(length) if length.isdigit() and len(length) <= MAX_LENGTH_DIGITS else None


def _digest_conversation(id: str) -> str:
    """Return a name for a conversation. Its id itself is a part of a state that only the server may know."""
    return hashlib.blake2b(id.encode("utf-8", "surrogatepass"), digest_size=CONVERSATION_DIGEST_BYTES).hexdigest()


def get_client_label(client_info: Mapping[str, Any]) -> str:
    """Return the name and the version that the client sent."""
    parts = [part for part in (client_info.get("name"), client_info.get("version")) if isinstance(part, str)]
    return sanitize_label(" ".join(parts))[:KEY_CHARACTERS]


def _build_arguments(call: Call, recording: ToolRecording) -> str:
    sent = call.params.get("arguments")
    if not recording.arguments or call.method != "tools/call" or type(sent) is not dict:
        return ""
    kept = {name: _shorten(sent[name]) for name in recording.arguments if name in sent}
    return jsonrpc.dumps(kept).decode() if kept else ""


def _shorten(value: Any) -> Any:
    characters = len(jsonrpc.dumps(value).decode())
    return value if characters <= MAX_ARGUMENT_CHARACTERS else f"({characters} characters)"
