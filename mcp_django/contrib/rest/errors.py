"""Text of error responses: one line for each problem, for a model.

The source are DRF's error bodies (`exceptions.APIException.detail`).
"""

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

from rest_framework.settings import api_settings

LINES = 50
"""Maximum number of lines. Further problems can wait until these are fixed."""
LONGEST = 4000
"""Maximum length of the text in characters."""


def error_text(status: int, data: Any, retry_after: str | None = None) -> str:
    """Format an error as one line per field, or in the view's own words.

    `retry_after` is in seconds. It is added unless the text contains it, as DRF's own text for throttled requests does.
    """

    lines = list(dict.fromkeys(_lines(data, "")))
    if len(lines) > LINES:
        lines = [*lines[:LINES], f"… and {len(lines) - LINES} more"]
    text = "\n".join(lines) or _phrase(status)
    if retry_after and retry_after not in text:
        text = f"{text}\nTry again in {retry_after} seconds."
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _lines(data: Any, path: str) -> Iterator[str]:
    if isinstance(data, Mapping):
        for key, value in data.items():
            own = key == api_settings.NON_FIELD_ERRORS_KEY or (key == "detail" and not path)
            inner = f"{path}[{key}]" if isinstance(key, int) else f"{path}.{key}" if path else str(key)
            yield from _lines(value, path if own else inner)
    elif isinstance(data, list | tuple) and any(isinstance(item, Mapping | list | tuple) for item in data):
        for number, item in enumerate(data):
            yield from _lines(item, f"{path}[{number}]")
    else:
        text = " ".join(str(item) for item in data) if isinstance(data, list | tuple) else _said(data)
        if text:
            yield f"{path}: {text}" if path else text


def _said(data: Any) -> str:
    return "" if data is None else str(data)


def _phrase(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)
