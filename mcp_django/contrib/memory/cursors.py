"""Signed cursors, each valid only for its owner, list and filters."""

import hashlib
import json
from datetime import datetime
from typing import Any

from django.core import signing
from django.core.exceptions import ValidationError

SALT = "mcp_django.contrib.memory"
INVALID_CURSOR_MESSAGE = "The cursor is invalid for this list. Omit it to start with the first page."


class MemoryCursor:
    """Cursors of one list of one owner."""

    def __init__(self, owner: str, *listed: Any) -> None:
        """Create a codec; `listed` identifies the list by its kind and filters."""
        scope = json.dumps([owner, *listed])
        self._salt = f"{SALT}.{hashlib.sha256(scope.encode('utf-8', 'surrogatepass')).hexdigest()}"

    def seal(self, *position: Any) -> str:
        """Return the cursor of a position, which consists of JSON values."""
        return signing.dumps(list(position), salt=self._salt, compress=True)

    def open(self, cursor: str | None) -> list[Any] | None:
        """Return the position of a cursor; None without one. Raises ValidationError."""
        if cursor is None:
            return None
        try:
            position: list[Any] = signing.loads(cursor, salt=self._salt)
        except (signing.BadSignature, ValueError):
            raise ValidationError(INVALID_CURSOR_MESSAGE) from None
        return position

    def seal_row(self, row: Any) -> str:
        """Return the cursor after a row in the order of `EntryQuerySet.page`."""
        return self.seal(row.updated.isoformat(), row.pk)

    def open_row(self, cursor: str | None) -> tuple[datetime, int] | None:
        """Return the position of a cursor created by `seal_row`. Raises ValidationError."""
        position = self.open(cursor)
        return None if position is None else (datetime.fromisoformat(position[0]), position[1])
