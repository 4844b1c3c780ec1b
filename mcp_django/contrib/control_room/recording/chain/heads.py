"""Sealed rows with the end of each chain, and with the time of the first seal."""

from collections.abc import Iterable
from datetime import datetime

from django.db import models

from mcp_django.contrib.control_room.models import ChainHead
from mcp_django.contrib.control_room.recording.chain.seals import ChainState, derive_keys, digest, format_time, is_same

START_PROCESS = ""
"""Process of the row with the time of the first seal of all processes."""


def save_head(process: str, state: ChainState, times: Iterable[datetime], alias: str) -> None:
    """Store the end of the chain of a process, in the transaction of its rows.

    `times` are those of the rows. The first rows of a project store their earliest time, too.
    """
    if state.at is None:
        return
    heads = ChainHead._default_manager.using(alias)
    head = {"number": state.number, "at": state.at, "seal": _seal(process, state.number, state.at)}
    heads.update_or_create(process=process, defaults=head)
    first = min(times, default=None)
    if first is not None:
        start = {"number": 0, "at": first, "seal": _seal(START_PROCESS, 0, first)}
        heads.get_or_create(process=START_PROCESS, defaults=start)


def select_old_heads(alias: str) -> "models.QuerySet[ChainHead]":
    """Return the rows that deletion by age may take: all but the time of the first seal, and the last end.

    A table without an end therefore shows that rows were deleted by other means.
    """
    heads = ChainHead._default_manager.using(alias).exclude(process=START_PROCESS)
    return heads.exclude(process=heads.order_by("-at").values_list("process", flat=True).first() or START_PROCESS)


def is_genuine_head(head: ChainHead) -> bool:
    """Return True if this package has written the row."""
    values = [head.process, head.number, format_time(head.at)]
    return any(is_same(digest(key, ["head", *values]), head.seal) for key in derive_keys())


def _seal(process: str, number: int, at: datetime) -> str:
    return digest(derive_keys()[0], ["head", process, number, format_time(at)])
