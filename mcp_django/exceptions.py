"""Django's exceptions as the engine's: what a handler may raise and the model may read."""

from django.core.exceptions import NON_FIELD_ERRORS, ObjectDoesNotExist, PermissionDenied, ValidationError
from django.http import Http404

from .protocol.errors import MCPError, NotFound, ToolError, URLElicitationRequired
from .server.once import OutcomeUnknown

__all__ = ["MCPError", "OutcomeUnknown", "ToolError", "URLElicitationRequired", "translate"]


def translate(problem: Exception) -> Exception | None:
    """The ToolError that an exception of Django's means, with a text for the model; None when it is a bug."""
    match problem:
        case ValidationError():
            return ToolError(_readable(problem))
        case PermissionDenied():
            return ToolError(str(problem) or "Permission denied")
        case Http404() | ObjectDoesNotExist():
            return NotFound(str(problem) or "Not found")
    return None


def _readable(problem: ValidationError) -> str:
    if not hasattr(problem, "error_dict"):
        return " ".join(problem.messages)
    lines = []
    for field, messages in problem.message_dict.items():
        text = " ".join(messages)
        lines.append(text if field == NON_FIELD_ERRORS else f"{field}: {text}")
    return "\n".join(lines)
