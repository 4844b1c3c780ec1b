"""State of a task on another server, in the wire format of the extension or of 2025-11-25.

Source: extension `io.modelcontextprotocol/tasks`, 2026-07-28; and 2025-11-25, basic/utilities/tasks.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, cast

from mcp_django.client.errors import MAX_TEXT_LENGTH, InvalidAnswer
from mcp_django.protocol.display_text import clean_text

TASK_RESULT_TYPE: Final = "task"
"""The `resultType` of a result that is a task."""
MAX_TASK_ID_CHARACTERS: Final = 1024
"""Maximum number of characters of a task's id."""

TaskStatusName = Literal["working", "input_required", "completed", "failed", "cancelled"]
_STATUSES: Final = ("working", "input_required", "completed", "failed", "cancelled")
_TERMINAL_STATUSES: Final = ("completed", "failed", "cancelled")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTaskState:
    """State of a task, as last sent by its server."""

    id: str
    status: TaskStatusName
    message: str | None
    """The server's description of the status, truncated."""
    created_at: datetime
    updated_at: datetime
    ttl: float | None
    """Seconds from the creation for which the server keeps the task; None for no limit."""
    poll_interval: float | None
    """Seconds between two polls, as suggested by the server."""
    input_requests: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Unanswered questions of the server, in wire format, by key."""
    result: dict[str, Any] | None = field(default=None, repr=False)
    """The result of a completed task in wire format; None if another request gets it."""
    error: dict[str, Any] | None = field(default=None, repr=False)
    """The JSON-RPC error of a failed task; None if another request gets it."""

    @property
    def is_terminal(self) -> bool:
        """Return True if the status never changes again."""
        return self.status in _TERMINAL_STATUSES


def is_task_result(raw: Mapping[str, Any]) -> bool:
    """Return True if the result of a call is a task, in either wire format."""
    return raw.get("resultType") == TASK_RESULT_TYPE or type(raw.get("task")) is dict


def parse_created_task(raw: Mapping[str, Any]) -> ClientTaskState:
    """Return the state of a task that a call has created.

    Raises InvalidAnswer if it violates the protocol.
    """
    flat = raw if raw.get("resultType") == TASK_RESULT_TYPE else raw["task"]
    id = flat.get("taskId")
    if type(id) is not str or not 0 < len(id) <= MAX_TASK_ID_CHARACTERS:
        raise InvalidAnswer("The server sent a task without a valid id")
    return _parse_task(flat, id)


def parse_task_state(raw: Mapping[str, Any], id: str) -> ClientTaskState:
    """Return the state of the task with this id from the answer to `tasks/get`.

    Raises InvalidAnswer if it violates the protocol, or belongs to another task.
    """
    if raw.get("taskId") != id:
        raise InvalidAnswer("The server sent the state of another task")
    return _parse_task(raw, id)


def _parse_task(raw: Mapping[str, Any], id: str) -> ClientTaskState:
    status, message = raw.get("status"), raw.get("statusMessage")
    if status not in _STATUSES or not (message is None or type(message) is str):
        raise InvalidAnswer("The server sent a task with an invalid status")
    return ClientTaskState(
        id=id,
        status=cast("TaskStatusName", status),
        message=None if message is None else clean_text(message, MAX_TEXT_LENGTH),
        created_at=_parse_time(raw.get("createdAt")),
        updated_at=_parse_time(raw.get("lastUpdatedAt")),
        ttl=_parse_milliseconds(raw.get("ttlMs", raw.get("ttl"))),
        poll_interval=_parse_milliseconds(raw.get("pollIntervalMs", raw.get("pollInterval"))),
        input_requests=_get_object(raw, "inputRequests", status == "input_required") or {},
        result=_get_object(raw, "result", status == "completed"),
        error=_parse_error(_get_object(raw, "error", status == "failed")),
    )


def _get_object(raw: Mapping[str, Any], name: str, is_expected: bool) -> dict[str, Any] | None:
    """Return an object that belongs to the status; None if it is missing."""
    value = raw.get(name)
    if value is None or not is_expected:
        return None
    if type(value) is not dict:
        raise InvalidAnswer(f"The server sent a task with an invalid {name}")
    return value


def _parse_error(error: dict[str, Any] | None) -> dict[str, Any] | None:
    if error is not None and (type(error.get("code")) is not int or type(error.get("message")) is not str):
        raise InvalidAnswer("The server sent a failed task with an invalid error")
    return error


def _parse_time(value: Any) -> datetime:
    try:
        return datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise InvalidAnswer("The server sent a task with an invalid time") from None


def _parse_milliseconds(value: Any) -> float | None:
    """Return seconds."""
    if value is None:
        return None
    if type(value) not in (int, float) or not math.isfinite(value) or value < 0:
        raise InvalidAnswer("The server sent a task with an invalid duration")
    return float(value) / 1000
