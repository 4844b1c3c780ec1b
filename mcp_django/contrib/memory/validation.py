"""What may be kept: values that callers give, checked and brought into the form in which they are kept.

What is wrong is a ValidationError, which a tool's caller reads as it stands.
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
"""What an id looks like: as it stands in a URI, and no path."""
MOST_TAGS, TAG_LENGTH = 20, 50
ROLES = ("user", "assistant", "system", "tool")
TITLE_EXCERPT = 80


class MemoryFull(ValidationError):
    """A quota is reached."""


def new_name() -> str:
    """An id for what was given none: 96 random bits."""
    return secrets.token_hex(12)


def is_name(given: str) -> bool:
    """Can it be an id? No database is asked about others, which could not take all of them."""
    return re.fullmatch(NAME, given) is not None


def name_of(given: str) -> str:
    """An id."""
    if not is_name(given):
        raise ValidationError(
            f"An id has up to {NAME_LENGTH} letters, digits, or one of . _ ~ -, and begins with a letter or digit."
        )
    return given


def line_of(given: str, what: str, longest: int) -> str:
    """One line of text, without space around it."""
    line = " ".join(given.split())
    if len(line) > longest:
        raise ValidationError(f"The {what} may have {longest} characters.")
    return _without_null(line)


def title_of(given: str) -> str:
    """A title."""
    return line_of(given, "title", TITLE_LENGTH)


def category_of(given: str) -> str:
    """A category: its case means nothing."""
    return line_of(given, "category", CATEGORY_LENGTH).casefold()[:CATEGORY_LENGTH]


def tags_of(given: Iterable[str]) -> list[str]:
    """Tags: their case means nothing, and each counts once."""
    if isinstance(given, str):
        raise ValidationError("Tags are a list of words.")
    tags = list(dict.fromkeys(line_of(tag, "tag", TAG_LENGTH).casefold() for tag in given))
    if len(tags) > MOST_TAGS:
        raise ValidationError(f"There may be {MOST_TAGS} tags.")
    return [tag for tag in tags if tag]


def text_of(given: str, what: str, longest: int) -> str:
    """A text of some lines, which says something."""
    text = given.strip()
    if not text:
        raise ValidationError(f"The {what} is empty.")
    if len(text) > longest:
        raise ValidationError(f"The {what} may have {longest} characters.")
    return _without_null(text)


def lifetime_of(days: float | None) -> timedelta | None:
    """How long something is to be kept; None when nothing is said of it."""
    if days is None:
        return None
    if not 0 < days <= MOST_DAYS:
        raise ValidationError(f"Something is kept for more than 0 and up to {MOST_DAYS} days.")
    return timedelta(days=days)


def messages_of(given: Iterable[Any]) -> list[dict[str, Any]]:
    """Messages: mappings with `role` and `content`, and `id`, `name` and `time` if they have them."""
    messages: list[dict[str, Any]] = []
    for number, message in enumerate(given, 1):
        kept = {key: value for key, value in dict(message).items() if value is not None}
        if unknown := kept.keys() - {"role", "content", "id", "name", "time"}:
            raise ValidationError(f"Message {number} has {', '.join(sorted(unknown))}, which messages do not have.")
        if kept.get("role") not in ROLES:
            raise ValidationError(f"Message {number} has no role: {', '.join(ROLES)}.")
        if not isinstance(kept.get("content"), str | list):
            raise ValidationError(f"Message {number} has no content: a text, or a list of content blocks.")
        for key in ("id", "name", "time"):
            if not isinstance(kept.get(key, ""), str):
                raise ValidationError(f"The {key} of message {number} is no text.")
        messages.append(kept)
    plain: list[dict[str, Any]] = _plain(messages, "messages")
    return plain


def metadata_of(given: dict[str, Any]) -> dict[str, Any]:
    """Metadata: a JSON object."""
    plain: dict[str, Any] = _plain(given, "metadata")
    return plain


def excerpt_of(messages: list[dict[str, Any]]) -> str:
    """A title for a conversation without one: how its user began."""
    for message in messages:
        if message["role"] == "user" and isinstance(message["content"], str):
            line = " ".join(message["content"].split())
            return line if len(line) <= TITLE_EXCERPT else f"{line[: TITLE_EXCERPT - 1]}…"
    return ""


def size_of(*values: Any) -> int:
    """The bytes of UTF-8 that these take: texts as they are, the rest as JSON."""
    texts = (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for value in values)
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)


def _plain(value: Any, what: str) -> Any:
    """The value as JSON keeps it."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise ValidationError(f"The {what} are no JSON.") from None
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
    """PostgreSQL keeps no U+0000, in text and in JSON."""
    if "\0" in text:
        raise ValidationError("U+0000 cannot be kept.")
    return text
