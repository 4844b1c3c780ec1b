"""Django's exceptions as the engine's: what a handler may raise and the model may read."""

from collections.abc import Mapping, Sequence

from django.core.exceptions import NON_FIELD_ERRORS, ObjectDoesNotExist, PermissionDenied, ValidationError
from django.http import Http404

from mcp_django.protocol.errors import MCPError, NotFound, ToolError, URLElicitationRequired
from mcp_django.protocol.meta import ERRORS
from mcp_django.server.client_requests.idempotency import OutcomeUnknown

__all__ = ["MCPError", "OutcomeUnknown", "ToolError", "URLElicitationRequired", "translate"]


def translate(problem: Exception) -> Exception | None:
    """The ToolError that an exception of Django's means, with a text for the model; None when it is a bug."""
    match problem:
        case ValidationError():
            return invalid(errors_of(problem))
        case PermissionDenied():
            return ToolError(str(problem) or "Permission denied")
        case Http404() | ObjectDoesNotExist():
            return NotFound(str(problem) or "Not found")
    return None


def errors_of(problem: ValidationError) -> dict[str, list[str]]:
    """What is wrong, by field; under `"__all__"` what concerns no single one."""
    return problem.message_dict if hasattr(problem, "error_dict") else {NON_FIELD_ERRORS: problem.messages}


def invalid(errors: Mapping[str, Sequence[str]]) -> ToolError:
    """The ToolError that says what is wrong with each field: a line for each, and the same as `_meta` for programs."""
    told = {field: [str(text) for text in texts] for field, texts in errors.items()}
    lines = [
        " ".join(texts) if field == NON_FIELD_ERRORS else f"{field}: {' '.join(texts)}" for field, texts in told.items()
    ]
    return ToolError("\n".join(lines), meta={ERRORS: told})
