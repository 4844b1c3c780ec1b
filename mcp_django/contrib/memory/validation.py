"""Validation and normalization of values given by clients.

Invalid values raise ValidationError, whose text the caller of a tool receives.
"""

import json
import re
import secrets
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from django.core.exceptions import ValidationError

from mcp_django.contrib.memory.models import CATEGORY_LENGTH, NAME_LENGTH, TITLE_LENGTH
from mcp_django.contrib.memory.options import MOST_DAYS

NAME = rf"[A-Za-z0-9][A-Za-z0-9._~-]{{0,{NAME_LENGTH - 1}}}"
"""Pattern of an id, which is valid in a URI as it is and is not a path."""
MOST_TAGS, TAG_LENGTH = 20, 50
ROLES = ("user", "assistant", "system", "tool")
TITLE_EXCERPT = 80


class MemoryFull(ValidationError):
    """A quota is reached."""


def new_name() -> str:
    """Return a new id: 96 random bits."""
    return secrets.token_hex(12)


def is_name(given: str) -> bool:
    """Return True if the text can be an id. Databases do not accept all other texts."""
    return re.fullmatch(NAME, given) is not None


def name_of(given: str) -> str:
    """Return a valid id, or raise ValidationError."""
    if not is_name(given):
        raise ValidationError(
            f"An id must have 1 to {NAME_LENGTH} letters, digits, or . _ ~ -, and start with a letter or digit."
        )
    return given


def line_of(given: str, what: str, longest: int) -> str:
    """Return text as one line, without surrounding space."""
    line = " ".join(given.split())
    if len(line) > longest:
        raise ValidationError(f"The {what} may have at most {longest} characters.")
    return _without_null(line)


def title_of(given: str) -> str:
    """Return a normalized title."""
    return line_of(given, "title", TITLE_LENGTH)


def category_of(given: str) -> str:
    """Return a normalized category; case is ignored."""
    return line_of(given, "category", CATEGORY_LENGTH).casefold()[:CATEGORY_LENGTH]


def tags_of(given: Iterable[str]) -> list[str]:
    """Return normalized tags without duplicates; case is ignored."""
    if isinstance(given, str):
        raise ValidationError("Tags must be a list of words.")
    tags = list(dict.fromkeys(line_of(tag, "tag", TAG_LENGTH).casefold() for tag in given))
    if len(tags) > MOST_TAGS:
        raise ValidationError(f"At most {MOST_TAGS} tags are possible.")
    return [tag for tag in tags if tag]


def text_of(given: str, what: str, longest: int) -> str:
    """Return a text of one or more lines, which must not be empty."""
    text = given.strip()
    if not text:
        raise ValidationError(f"The {what} is empty.")
    if len(text) > longest:
        raise ValidationError(f"The {what} may have at most {longest} characters.")
    return _without_null(text)


def lifetime_of(days: float | None) -> timedelta | None:
    """Return the lifetime for a number of days; None for None."""
    if days is None:
        return None
    if not 0 < days <= MOST_DAYS:
        raise ValidationError(f"The lifetime must be more than 0 and at most {MOST_DAYS} days.")
    return timedelta(days=days)


def messages_of(given: Iterable[Any]) -> list[dict[str, Any]]:
    """Return normalized messages: mappings with `role` and `content`.

    They may also have `id`, `name` and `time`.
    """
    messages: list[dict[str, Any]] = []
    for number, message in enumerate(given, 1):
        kept = {key: value for key, value in dict(message).items() if value is not None}
        if unknown := kept.keys() - {"role", "content", "id", "name", "time"}:
            raise ValidationError(f"Message {number} has unknown members: {', '.join(sorted(unknown))}.")
        if kept.get("role") not in ROLES:
            raise ValidationError(f"Message {number} has no valid role; use one of {', '.join(ROLES)}.")
        if not isinstance(kept.get("content"), str | list):
            raise ValidationError(f"Message {number} has no valid content; use a text or a list of content blocks.")
        for key in ("id", "name", "time"):
            if not isinstance(kept.get(key, ""), str):
                raise ValidationError(f"The {key} of message {number} must be a text.")
        messages.append(kept)

    plain: list[dict[str, Any]] = _plain(messages, "messages")
    return plain


def metadata_of(given: dict[str, Any]) -> dict[str, Any]:
    """Return metadata as a JSON object."""
    plain: dict[str, Any] = _plain(given, "metadata")
    return plain


def excerpt_of(messages: list[dict[str, Any]]) -> str:
    """Return a title for a conversation: the beginning of its first user message."""
    for message in messages:
        if message["role"] == "user" and isinstance(message["content"], str):
            line = " ".join(message["content"].split())
            return line if len(line) <= TITLE_EXCERPT else f"{line[: TITLE_EXCERPT - 1]}…"
    return ""


def size_of(*values: Any) -> int:
    """Return the UTF-8 bytes of these values: texts unchanged, other values as JSON."""
    texts = (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for value in values)
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)


def _plain(value: Any, what: str) -> Any:
    """Return the value as JSON stores it."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise ValidationError(f"The {what} must be valid JSON.") from None
    plain = json.loads(text)
    _refuse_null(plain)
    return plain


def _refuse_null(value: Any) -> None:
    if isinstance(value, str):
        _without_null(value)
    elif isinstance(value, list):
        for item in value:
            _refuse_null(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            _without_null(key)
            _refuse_null(item)


def _without_null(text: str) -> str:
    """Return the text, or raise ValidationError: PostgreSQL cannot store U+0000."""
    if "\0" in text:
        raise ValidationError("U+0000 cannot be stored; remove it.")
    return text
