"""Text of error responses: one line for each problem, for a model.

The source are DRF's error bodies (`exceptions.APIException.detail`).
"""

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

from rest_framework.settings import api_settings

MAX_ERROR_LINES = 50
"""Maximum number of lines. Further problems can wait until these are fixed."""
MAX_ERROR_CHARACTERS = 4000
"""Maximum length of the text in characters."""


def format_error(status: int, data: Any, retry_after: str | None = None) -> str:
    """Format an error as one line per field, or in the view's own words.

    `retry_after` is in seconds. It is added unless the text contains it, as DRF's own text for throttled requests does.
    """

    lines = list(dict.fromkeys(_iter_lines(data, "")))
    if len(lines) > MAX_ERROR_LINES:
        lines = [*lines[:MAX_ERROR_LINES], f"… and {len(lines) - MAX_ERROR_LINES} more"]
    text = "\n".join(lines) or _get_status_phrase(status)
    if retry_after and retry_after not in text:
        text = f"{text}\nTry again in {retry_after} seconds."
    return text if len(text) <= MAX_ERROR_CHARACTERS else f"{text[: MAX_ERROR_CHARACTERS - 1]}…"


def _iter_lines(data: Any, path: str) -> Iterator[str]:
    if isinstance(data, Mapping):
        for key, value in data.items():
            own = key == api_settings.NON_FIELD_ERRORS_KEY or (key == "detail" and not path)
            inner = f"{path}[{key}]" if isinstance(key, int) else f"{path}.{key}" if path else str(key)
            yield from _iter_lines(value, path if own else inner)
    elif isinstance(data, list | tuple) and any(isinstance(item, Mapping | list | tuple) for item in data):
        for number, item in enumerate(data):
            yield from _iter_lines(item, f"{path}[{number}]")
    else:
        text = " ".join(str(item) for item in data) if isinstance(data, list | tuple) else _to_text(data)
        if text:
            yield f"{path}: {text}" if path else text


def _to_text(data: Any) -> str:
    return "" if data is None else str(data)


def _get_status_phrase(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)
