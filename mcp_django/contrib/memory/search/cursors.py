"""Where a list goes on: signed, and good for the owner, the list and the filter that it was made for only."""

import hashlib
import json
from datetime import datetime
from typing import Any

from django.core import signing
from django.core.exceptions import ValidationError

SALT = "mcp_django.contrib.memory"
INVALID = "The cursor is of no use here. Leave it out to begin with the first page."


class Cursor:
    """The cursors of one list of one owner."""

    def __init__(self, owner: str, *listed: Any) -> None:
        """`listed` says what the list is: its kind and its filters."""
        said = json.dumps([owner, *listed])
        self._salt = f"{SALT}.{hashlib.sha256(said.encode('utf-8', 'surrogatepass')).hexdigest()}"

    def seal(self, *position: Any) -> str:
        """The cursor of a position: values that JSON can say."""
        return signing.dumps(list(position), salt=self._salt, compress=True)

    def open(self, cursor: str | None) -> list[Any] | None:
        """The position of a cursor; None without one. Raises ValidationError."""
        if cursor is None:
            return None
        try:
            position: list[Any] = signing.loads(cursor, salt=self._salt)
        except (signing.BadSignature, ValueError):
            raise ValidationError(INVALID) from None
        return position

    def after(self, row: Any) -> str:
        """The cursor behind a row of a list in the order of `EntryQuerySet.page`."""
        return self.seal(row.updated.isoformat(), row.pk)

    def row(self, cursor: str | None) -> tuple[datetime, int] | None:
        """The position of a cursor that `after` has made. Raises ValidationError."""
        position = self.open(cursor)
        return None if position is None else (datetime.fromisoformat(position[0]), position[1])
