"""Outcomes of the rounds of a forwarded call, and their JSON in the sealed state of the local call."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Wire = dict[str, Any]

RECORD_VERSION = 1
"""Version of the JSON. A record of another version is refused, like an expired state."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The remote server sent its result."""

    result: Wire


@dataclass(frozen=True, slots=True)
class Suspended:
    """The remote call runs and waits for the client. This process keeps it under an ID."""

    call_id: str


@dataclass(frozen=True, slots=True)
class NeedsInput:
    """The remote call ended with requests to the client, or requires a retry with its state alone."""

    requests: Mapping[str, Wire] = field(default_factory=dict)
    """Requests to the client by key."""
    request_state: str | None = None
    """State that the remote server receives back; None if it sent none."""
    task_id: str | None = None
    """ID of the remote task that sent the requests; None if the call itself sent them."""


@dataclass(frozen=True, slots=True)
class NeedsAuthorization:
    """The caller has not authorized the remote server."""

    url: str | None
    """URL of the page that asks the user, or None."""


Step = Finished | Suspended | NeedsInput | NeedsAuthorization


class UnknownStep(ValueError):
    """The record of a step has another version or shape."""


def to_json(step: Step) -> Wire:
    """Return the record of a step."""
    record: Wire = {"version": RECORD_VERSION}
    match step:
        case Finished(result):
            record["finished"] = result
        case Suspended(call_id):
            record["suspended"] = call_id
        case NeedsInput(requests, request_state, task_id):
            record["input"] = {"requests": requests, "requestState": request_state, "taskId": task_id}
        case NeedsAuthorization(url):
            record["authorization"] = url
    return record


def from_json(record: Any) -> Step:
    """Return the step of a record. Raises UnknownStep."""
    if type(record) is not dict or record.get("version") != RECORD_VERSION:
        raise UnknownStep
    match record:
        case {"finished": dict() as result}:
            return Finished(result)
        case {"suspended": str() as call_id}:
            return Suspended(call_id)
        case {"input": {"requests": dict() as requests, "requestState": request_state, "taskId": task_id}}:
            return NeedsInput(requests, request_state, task_id)
        case {"authorization": url}:
            return NeedsAuthorization(url)
    raise UnknownStep
