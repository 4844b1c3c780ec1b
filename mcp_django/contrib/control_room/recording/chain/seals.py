"""Seals of rows: their text, their digests, and the forms of earlier versions."""

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache, partial
from typing import Any, NamedTuple

from django.db.models import Q

from mcp_django.conf import secret_keys
from mcp_django.contrib.control_room.models import REMOVED_PREFIX, CallLogEntry
from mcp_django.crypto import derive_key

KEY_LABEL = "mcp_django.contrib.control_room.chain"
UNSEALED = Q(seal="")
"""Condition of rows outside of a chain."""
ACTOR_FIELD = "actor_key"
ACTOR_DIGEST_CHARACTERS = 24
CLEARED_FIELDS = ("client", "arguments", "timeline", "session", "conversation", "trace_id", "call_id", "reference")
"""Columns that the removal of a user empties.

They hold values of the user, and labels that are also in other rows of the user or in logs.
"""
_NUMBER = re.compile(r"[1-9][0-9]{0,18}")
_TIME = re.compile(r"(?:-?[1-9][0-9]{0,17}|0)?")
_DIGEST = re.compile(r"(?:[0-9a-f]{64})?")
_ACTOR_DIGEST = re.compile(rf"(?:[0-9a-f]{{{ACTOR_DIGEST_CHARACTERS}}})?")
_SALT = re.compile(r"(?:[0-9a-f]{16})?")
_REMOVED_NAME = re.compile(rf"{REMOVED_PREFIX}[0-9a-f]{{16}}")


class SealForm(NamedTuple):
    """Columns that the digests of a seal cover."""

    public: tuple[str, ...]
    """Columns that never change, in addition to the time, which each form covers."""
    personal: tuple[str, ...]
    """Columns that the removal of the caller changes."""
    uncovered: Mapping[str, Any] = {}
    """Columns that are later than the form, and their values."""

    @property
    def has_actor(self) -> bool:
        return ACTOR_FIELD not in self.uncovered

    def can_clear(self) -> bool:
        """Return True if the digest of the row stays valid when the caller is removed."""
        return not set(CLEARED_FIELDS) & set(self.public)


_CALL_FIELDS = ("server", "method", "name", "outcome", "error_code")
_FIRST_PUBLIC = (
    *_CALL_FIELDS,
    "reference",
    "milliseconds",
    "revision",
    "session",
    "call_id",
    "trace_id",
    "process",
)
_FIRST_PERSONAL = ("principal", "user_key", "client", "arguments")
_ROUND_FIELDS = {
    "transport": "",
    "conversation": "",
    "round": None,
    "waited_milliseconds": None,
    "request_bytes": None,
    "response_bytes": None,
}
CURRENT_FORM = "3"
FORMS: Mapping[str, SealForm] = {
    # Seals of before migration 0008, whose columns are as the migration left them.
    "1": SealForm(_FIRST_PUBLIC, _FIRST_PERSONAL, {ACTOR_FIELD: "", "timeline": "", **_ROUND_FIELDS}),
    # Seals of before migration 0011.
    "2": SealForm((*_FIRST_PUBLIC, *_ROUND_FIELDS), (*_FIRST_PERSONAL, "timeline")),
    CURRENT_FORM: SealForm(
        (
            *_CALL_FIELDS,
            "milliseconds",
            "revision",
            "process",
            "transport",
            "round",
            "waited_milliseconds",
            "request_bytes",
            "response_bytes",
        ),
        ("principal", "user_key", *CLEARED_FIELDS),
    ),
}
"""Forms by their first part. Each seal of the current form names it."""
_ALL_FIELDS = ("at", ACTOR_FIELD, *FORMS[CURRENT_FORM].public, *FORMS[CURRENT_FORM].personal)


class Seal(NamedTuple):
    """Place of a row in the chain of its process."""

    form: str
    number: int
    previous_at: str
    """Time of the row before it, in microseconds since the epoch; empty for the first row."""
    previous: str
    """Digest of the row before it; empty for the first row."""
    personal: str
    """Digest of the caller's values."""
    digest: str
    actor: str = ""
    """Digest of the acting user; empty in the first form."""
    personal_salt: str = ""
    actor_salt: str = ""
    """Random digits in the two digests, which a removal deletes.

    Without them, the key cannot confirm a guess of the person.
    """
    mark: str = ""
    """Digest of a removal; empty without one."""

    def __str__(self) -> str:
        parts = [str(part) for part in self]
        if self.form == CURRENT_FORM or self.mark:
            return ":".join(parts)
        return ":".join(parts[1:7] if FORMS[self.form].has_actor else parts[1:6])

    @classmethod
    def parse(cls, text: str) -> "Seal | None":
        """Return the seal of a text; None unless it is the only text of the seal."""
        parts = text.split(":")
        if len(parts) in (5, 6):
            parts = ["1" if len(parts) == 5 else "2", *parts]
        parts += [""] * (len(cls._fields) - len(parts))
        patterns = (_NUMBER, _TIME, _DIGEST, _DIGEST, _DIGEST, _ACTOR_DIGEST, _SALT, _SALT, _DIGEST)
        if len(parts) != len(cls._fields) or parts[0] not in FORMS:
            return None
        if not all(pattern.fullmatch(part) for pattern, part in zip(patterns, parts[1:], strict=True)):
            return None
        seal = cls(parts[0], int(parts[1]), *parts[2:])
        return seal if str(seal) == text else None

    def is_genuine(self, row: CallLogEntry) -> bool:
        """Return True if the row has the values of the seal, or the values that a removal leaves."""
        values = get_values(row)
        form = FORMS[self.form]
        if any(values[name] != value for name, value in form.uncovered.items() if name != ACTOR_FIELD):
            return False
        if not form.has_actor and values[ACTOR_FIELD]:
            return False
        if self.mark and not any(is_same(_digest_mark(key, values, self), self.mark) for key in derive_keys()):
            return False
        return any(self._fits(key, values) for key in derive_keys())

    def _fits(self, key: bytes, values: Mapping[str, Any]) -> bool:
        form = FORMS[self.form]
        # Removals of before migration 0011 have no mark. They cleared fewer columns.
        can_be_removed = bool(self.mark) or self.form != CURRENT_FORM
        is_removed = can_be_removed and is_removed_name(values["principal"])
        if is_removed:
            cleared = CLEARED_FIELDS if self.mark else form.personal[2:]
            is_caller_genuine = not any(values[name] for name in ("user_key", *cleared))
        else:
            is_caller_genuine = is_same(_digest_personal(key, values, self), self.personal)

        is_actor_removed = can_be_removed and is_removed_name(values[ACTOR_FIELD])
        is_actor_genuine = (
            not form.has_actor or is_actor_removed or is_same(_digest_actor(key, values, self), self.actor)
        )
        # The mark covers the row if the removal has cleared columns of the digest.
        is_row_genuine = (is_removed and self.mark and not form.can_clear()) or is_same(
            _digest_row(key, values, self), self.digest
        )
        return bool(is_caller_genuine and is_actor_genuine and is_row_genuine)

    def mark_removal(self, row: CallLogEntry) -> "Seal":
        """Return the seal of a row whose caller, or acting user, was removed."""
        seal = self._replace(mark="")
        if is_removed_name(row.principal):
            # The digest of the row covers that of the person. Earlier forms check neither after a removal.
            seal = seal._replace(personal_salt="") if seal.form == CURRENT_FORM else seal._replace(personal="")
        if is_removed_name(row.actor_key):
            seal = seal._replace(actor_salt="")
        return seal._replace(mark=_digest_mark(derive_keys()[0], get_values(row), seal))


@dataclass(frozen=True, slots=True)
class ChainState:
    """End of the chain of a process."""

    number: int = 0
    digest: str = ""
    at: datetime | None = None
    salt_key: bytes = field(default_factory=partial(secrets.token_bytes, 16), repr=False)
    """Key of the salts, which never leaves the memory of the process.

    A write that is repeated has the same salts.
    """

    def seal_next(self, values: Mapping[str, Any]) -> "tuple[Seal, ChainState]":
        """Return the seal of the next row, and the state after it."""
        key = derive_keys()[0]
        at = "" if self.at is None else format_time(self.at)
        salts = digest(self.salt_key, [self.number + 1])
        # The digests follow, because they cover other parts of the seal.
        seal = Seal(
            form=CURRENT_FORM,
            number=self.number + 1,
            previous_at=at,
            previous=self.digest,
            personal="",
            digest="",
            personal_salt=salts[:16],
            actor_salt=salts[16:32],
        )
        seal = seal._replace(actor=_digest_actor(key, values, seal), personal=_digest_personal(key, values, seal))
        seal = seal._replace(digest=_digest_row(key, values, seal))
        return seal, replace(self, number=seal.number, digest=seal.digest, at=values["at"])


def is_removed_name(name: str) -> bool:
    """Return True for the name that a removed user gets."""
    return _REMOVED_NAME.fullmatch(name) is not None


def get_values(row: CallLogEntry) -> dict[str, Any]:
    """Return the values of a row that seals cover."""
    return {name: getattr(row, name) for name in _ALL_FIELDS}


def _digest_row(key: bytes, values: Mapping[str, Any], seal: Seal) -> str:
    links = [seal.number, seal.previous_at, seal.previous, seal.personal]
    if seal.form == CURRENT_FORM:
        columns = _select(values, FORMS[seal.form].public)
        return digest(key, ["row", format_time(values["at"]), columns, *links, seal.actor])
    later = [*(values[name] for name in _ROUND_FIELDS), seal.actor] if FORMS[seal.form].has_actor else []
    return digest(key, [format_time(values["at"]), *(values[name] for name in _FIRST_PUBLIC), *links, *later])


def _digest_personal(key: bytes, values: Mapping[str, Any], seal: Seal) -> str:
    names = FORMS[seal.form].personal
    if seal.form == CURRENT_FORM:
        return digest(key, ["caller", values["process"], seal.number, seal.personal_salt, _select(values, names)])
    return digest(key, [values[name] for name in names])


def _digest_actor(key: bytes, values: Mapping[str, Any], seal: Seal) -> str:
    parts = [format_time(values["at"]), values["process"], values[ACTOR_FIELD]]
    if seal.form == CURRENT_FORM:
        parts = ["actor", *parts, seal.actor_salt]
    return digest(key, parts)[:ACTOR_DIGEST_CHARACTERS]


def _digest_mark(key: bytes, values: Mapping[str, Any], seal: Seal) -> str:
    columns = _select({**values, "at": format_time(values["at"])}, _ALL_FIELDS)
    return digest(key, ["removal", str(seal._replace(mark="")), columns])


def _select(values: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return the values that are not empty.

    So a later column, which is empty in the rows that exist, leaves their digests as they are.
    """
    return {name: values[name] for name in sorted(names) if values[name] not in ("", None)}


def digest(key: bytes, values: list[Any]) -> str:
    """Return the keyed digest of values of JSON."""
    return hmac.new(key, json.dumps(values).encode(), hashlib.sha256).hexdigest()


def is_same(first: str, second: str) -> bool:
    """Return True for equal digests."""
    return hmac.compare_digest(first, second)


def format_time(at: datetime) -> str:
    """Return a time as microseconds since the epoch."""
    return str(round(at.timestamp() * 1_000_000))


def derive_keys() -> list[bytes]:
    """Return the keys of `SECRET_KEY` and of its fallbacks; the first one seals."""
    return [_derive_key(secret) for secret in secret_keys()]


@lru_cache(maxsize=8)
def _derive_key(secret: str) -> bytes:
    return derive_key(secret, KEY_LABEL)
