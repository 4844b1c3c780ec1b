"""Parameters of progress, log and custom notifications of a running call."""

from mcp_django.protocol.jsonrpc import JSONObject
from mcp_django.protocol.types import LOG_LEVELS
from mcp_django.schema import to_json
from mcp_django.server.calls.call import Call

LOG_MESSAGE_METHOD = "notifications/message"
"""Notification that carries a log message (server/utilities/logging)."""


def build_progress_params(
    call: Call, last_progress: float | None, progress: float, total: float | None, message: str | None
) -> JSONObject | None:
    """Build the parameters of `notifications/progress`.

    Returns None if the client did not request progress, or if `progress` does not exceed the last value
    (basic/utilities/progress).
    """
    token = call.meta.get("progressToken")
    if token is None or (last_progress is not None and progress <= last_progress):
        return None
    params: JSONObject = {"progressToken": token, "progress": progress}
    if total is not None:
        params["total"] = total
    if message is not None and call.revision.progress_message:
        params["message"] = str(message)
    return params


def build_log_params(call: Call, level: str, data: object, logger: str | None) -> JSONObject | None:
    """Build the parameters of `notifications/message`; None for an unwanted level."""
    if level not in LOG_LEVELS:
        raise ValueError(f"unknown log level {level!r}; use one of {', '.join(LOG_LEVELS)}")
    if not call.wants_log_level(level):
        return None
    params: JSONObject = {"level": level, "data": to_json(data)}
    if logger is not None:
        params["logger"] = logger
    return params


def check_notification_method(method: str) -> None:
    """Raise ValueError unless `method` is the name of a notification."""
    if not method.startswith("notifications/"):
        raise ValueError(f"{method!r} is not a notification; the name must start with notifications/")
