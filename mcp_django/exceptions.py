"""Translation of Django's exceptions into errors that a model may read."""

from collections.abc import Mapping, Sequence

from django.core.exceptions import NON_FIELD_ERRORS, ObjectDoesNotExist, PermissionDenied, ValidationError
from django.http import Http404

from mcp_django.protocol.errors import MCPError, NotFound, ToolError, URLElicitationRequired
from mcp_django.protocol.meta import ERRORS_KEY
from mcp_django.server.context.idempotency import OutcomeUnknown

__all__ = ["MCPError", "OutcomeUnknown", "ToolError", "URLElicitationRequired", "translate"]

INVALID_MOVES = frozenset({"mptt.exceptions.InvalidMove", "treebeard.exceptions.InvalidMoveToDescendant"})
"""Exceptions of packages for trees, whose texts are for users.

The packages are optional, so the classes are named.
"""


def translate(error: Exception) -> Exception | None:
    """Return the ToolError for an exception of Django's; None for a bug."""
    match error:
        case ValidationError():
            return build_invalid_error(get_field_errors(error))
        case PermissionDenied():
            return ToolError(str(error) or "Permission denied")
        case Http404() | ObjectDoesNotExist():
            return NotFound(str(error) or "Not found")
    if _is_invalid_move(error):
        return ToolError(str(error) or "A row cannot be moved to this place of the tree")
    return None


def _is_invalid_move(error: Exception) -> bool:
    """Return True if a tree refuses to move a row below itself."""
    return any(f"{cls.__module__}.{cls.__qualname__}" in INVALID_MOVES for cls in type(error).__mro__)


def get_field_errors(error: ValidationError) -> dict[str, list[str]]:
    """Return the messages by field; those without a field are under `"__all__"`."""
    return error.message_dict if hasattr(error, "error_dict") else {NON_FIELD_ERRORS: error.messages}


def build_invalid_error(errors: Mapping[str, Sequence[str]]) -> ToolError:
    """Return a ToolError with one line for each invalid field.

    Programs find the same messages in `_meta`.
    """
    messages = {field: [str(text) for text in texts] for field, texts in errors.items()}
    lines = [
        " ".join(texts) if field == NON_FIELD_ERRORS else f"{field}: {' '.join(texts)}"
        for field, texts in messages.items()
    ]
    return ToolError("\n".join(lines), meta={ERRORS_KEY: messages})
