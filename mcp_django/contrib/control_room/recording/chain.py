"""Hash chain of the rows of calls: altered, removed and inserted rows are found.

Each process has a chain of its own. The seal of a row holds its number, the time and the digest of the row before it,
and two keyed digests: one of the personal values, and one of everything. The last number of a process is kept in a row
of its own, so a removed end is found as well. The keys are derived from `SECRET_KEY`.

The removal of a user changes personal values only. An acting user has a digest of its own, because it may be removed
without the caller. Retention removes the start of a chain, whose rows are old enough.

Seals of before migration 0008 have no digest of the acting user, and do not cover the columns of that migration. In
their rows, these columns are as the migration left them.
"""

import hashlib
import hmac
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import groupby
from types import MappingProxyType
from typing import Any, NamedTuple

from django.db.models import Q
from django.utils import timezone

from mcp_django.conf import secret_keys
from mcp_django.contrib.control_room.models import REMOVED_PREFIX, CallLogEntry, ChainHead
from mcp_django.contrib.control_room.options import get_settings
from mcp_django.crypto import derive_key

KEY_LABEL = "mcp_django.contrib.control_room.chain"
PERSONAL_FIELDS = ("principal", "user_key", "client", "arguments")
FIRST_FIELDS = (
    "server",
    "method",
    "name",
    "outcome",
    "error_code",
    "reference",
    "milliseconds",
    "revision",
    "session",
    "call_id",
    "trace_id",
    "process",
)
"""Fields that all seals cover, besides the personal ones."""
LATER_FIELDS: Mapping[str, Any] = MappingProxyType(
    {
        "transport": "",
        "conversation": "",
        "round": None,
        "waited_milliseconds": None,
        "request_bytes": None,
        "response_bytes": None,
    }
)
"""Further fields of seals with a digest of the acting user, and their values in rows of other seals."""
LATER_PERSONAL_FIELDS: Mapping[str, Any] = MappingProxyType({"timeline": ""})
"""Further personal fields of such seals."""
ACTOR_FIELD = "actor_key"
ACTOR_DIGEST_CHARACTERS = 24
UNSEALED = Q(seal="")
"""Condition of rows outside of a chain."""
RETENTION_SLACK = timedelta(hours=2)
"""Time by which a row may be deleted before the end of its retention."""


_DEFAULTS = {ACTOR_FIELD: "", **LATER_FIELDS, **LATER_PERSONAL_FIELDS}
_ALL_FIELDS = ("at", *PERSONAL_FIELDS, *FIRST_FIELDS, *_DEFAULTS)


class Seal(NamedTuple):
    """Place of a row in the chain of its process."""

    number: int
    previous_at: str
    """Time of the row before it; empty for the first row."""
    previous: str
    """Digest of the row before it; empty for the first row."""
    personal: str
    digest: str
    actor: str = ""
    """Digest of the acting user; empty in older seals."""

    def __str__(self) -> str:
        parts = (str(self.number), *self[1:])
        return ":".join(parts if self.actor else parts[:-1])

    @classmethod
    def parse(cls, text: str) -> "Seal | None":
        """Return the seal of a text; None if it is damaged."""
        parts = text.split(":")
        if len(cls._fields) - len(parts) not in (0, 1) or not parts[0].isdecimal():
            return None
        return cls(int(parts[0]), *parts[1:])


@dataclass(frozen=True, slots=True)
class ChainState:
    """End of the chain of a process."""

    number: int = 0
    digest: str = ""
    at: datetime | None = None

    def seal_next(self, values: Mapping[str, Any]) -> "tuple[Seal, ChainState]":
        """Return the seal of the next row, and the state after it."""
        key = _derive_keys()[0]
        at = "" if self.at is None else _format_time(self.at)
        seal = Seal(self.number + 1, at, self.digest, "", "", _digest_actor(key, values))
        seal = seal._replace(personal=_digest_personal(key, values, seal))
        seal = seal._replace(digest=_digest_row(key, values, seal))
        return seal, replace(self, number=seal.number, digest=seal.digest, at=values["at"])


class ChainProblem(NamedTuple):
    """Finding of the verification."""

    kind: str
    """"altered", "removed" or "inserted"."""
    process: str
    text: str


def verify_chain(alias: str) -> Iterator[ChainProblem]:
    """Yield the problems of all chains, process by process."""
    rows = CallLogEntry.objects.using(alias).exclude(UNSEALED).order_by("process", "pk").iterator()
    heads = {head.process: head for head in ChainHead._default_manager.using(alias)}
    keys = _derive_keys()
    kept_since = timezone.now() - timedelta(days=get_settings().keep["calls"]) + RETENTION_SLACK
    for process, group in groupby(rows, key=lambda row: row.process):
        yield from _ChainVerifier(process, keys, kept_since).verify(group, heads.pop(process, None))
    for process, head in heads.items():
        if head.at >= kept_since:
            yield ChainProblem("removed", process, f"all rows up to number {head.number} are missing")
    yield from _find_unsealed(alias)


def _find_unsealed(alias: str) -> Iterator[ChainProblem]:
    """Yield the rows without a seal that are later than the first row with one of the same process."""
    sealed = CallLogEntry.objects.using(alias).exclude(UNSEALED).order_by("-at").values_list("process", "at")
    starts = dict(sealed)  # The earliest time of a process comes last, and stays.
    for row in CallLogEntry.objects.using(alias).filter(UNSEALED, process__in=starts).order_by("pk").iterator():
        if row.at >= starts[row.process]:
            yield ChainProblem("inserted", row.process, f"row {row.pk} has no seal")


class _ChainVerifier:
    """Verifier of the chain of one process."""

    def __init__(self, process: str, keys: list[bytes], kept_since: datetime) -> None:
        self.process = process
        self._keys = keys
        self._kept_since = kept_since

    def verify(self, rows: Iterator[CallLogEntry], head: ChainHead | None) -> Iterator[ChainProblem]:
        """Yield the problems of the rows, which are in order."""
        previous: Seal | None = None
        for row in rows:
            seal = Seal.parse(row.seal)
            if seal is None or not self._is_genuine(row, seal):
                is_copy = seal is not None and previous is not None and seal.number <= previous.number
                yield self._report("inserted" if is_copy else "altered", f"row {row.pk} does not fit its seal")
                previous = None if seal is None else max(seal, previous or seal, key=lambda each: each.number)
                continue
            if previous is None:
                if seal.previous_at and self._is_kept(seal.previous_at):
                    yield self._report("removed", f"a row before row {row.pk} is missing, number {seal.number - 1}")
            elif seal.number <= previous.number:
                yield self._report("inserted", f"row {row.pk} repeats number {seal.number}")
                continue
            elif seal.number > previous.number + 1:
                missing = f"{previous.number + 1} to {seal.number - 1}"
                yield self._report("removed", f"rows before row {row.pk} are missing, numbers {missing}")
            elif seal.previous != previous.digest:
                yield self._report("altered", f"row {row.pk} does not continue the row before it")
            previous = seal
        if head is None:
            yield self._report("removed", "the row with the last number is missing")
        elif previous is not None and head.number > previous.number:
            yield self._report("removed", f"rows at the end are missing, up to number {head.number}")

    def _is_genuine(self, row: CallLogEntry, seal: Seal) -> bool:
        values = {name: getattr(row, name) for name in _ALL_FIELDS}
        if not seal.actor and any(values[name] != default for name, default in _DEFAULTS.items()):
            return False
        for key in self._keys:
            if hmac.compare_digest(_digest_row(key, values, seal), seal.digest):
                return _has_genuine_people(key, values, seal)
        return False

    def _is_kept(self, at: str) -> bool:
        """Return True if a row of this time should still exist."""
        return datetime.fromtimestamp(int(at) / 1_000_000, UTC) >= self._kept_since

    def _report(self, kind: str, text: str) -> ChainProblem:
        return ChainProblem(kind, self.process, text)


def _has_genuine_people(key: bytes, values: Mapping[str, Any], seal: Seal) -> bool:
    """Return True if the caller and the acting user are those of the seal, or were removed."""
    is_caller_genuine = values["principal"].startswith(REMOVED_PREFIX) or hmac.compare_digest(
        _digest_personal(key, values, seal), seal.personal
    )
    if not seal.actor or values[ACTOR_FIELD].startswith(REMOVED_PREFIX):
        return is_caller_genuine
    return is_caller_genuine and hmac.compare_digest(_digest_actor(key, values), seal.actor)


def _digest_row(key: bytes, values: Mapping[str, Any], seal: Seal) -> str:
    later = [*(values[name] for name in LATER_FIELDS), seal.actor] if seal.actor else []
    links = [seal.number, seal.previous_at, seal.previous, seal.personal]
    return _digest(key, [_format_time(values["at"]), *(values[name] for name in FIRST_FIELDS), *links, *later])


def _digest_personal(key: bytes, values: Mapping[str, Any], seal: Seal) -> str:
    later = LATER_PERSONAL_FIELDS if seal.actor else ()
    return _digest(key, [values[name] for name in (*PERSONAL_FIELDS, *later)])


def _digest_actor(key: bytes, values: Mapping[str, Any]) -> str:
    return _digest(key, [_format_time(values["at"]), values["process"], values[ACTOR_FIELD]])[:ACTOR_DIGEST_CHARACTERS]


def _digest(key: bytes, values: list[Any]) -> str:
    return hmac.new(key, json.dumps(values).encode(), hashlib.sha256).hexdigest()


def _format_time(at: datetime) -> str:
    """Return a time as microseconds since the epoch."""
    return str(round(at.timestamp() * 1_000_000))


def _derive_keys() -> list[bytes]:
    return [_derive_key(secret) for secret in secret_keys()]


@lru_cache(maxsize=8)
def _derive_key(secret: str) -> bytes:
    return derive_key(secret, KEY_LABEL)
