"""Ends of chains outside of the database: a signal, and a file to which each write appends a line.

A line has the time, the process, the number and the digest of the last row of a write. A digest depends on all rows
before it, so the file shows rows that were replaced or cut off later, even by a person who knows the key.
"""

import json
import os
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from django.utils.dateparse import parse_datetime

from mcp_django.contrib.control_room.options import get_settings
from mcp_django.contrib.control_room.recording.chain.seals import ChainState
from mcp_django.contrib.control_room.signals import chain_sealed
from mcp_django.extensions.calls import get_logger, jsonrpc

logger = get_logger("mcp_django.records")


class Anchor(NamedTuple):
    """End of the chain of a process at one time."""

    at: datetime
    process: str
    number: int
    digest: str


class UnreadableAnchor(ValueError):
    """A file with a line that is not an anchor; the text has the place."""


def publish_anchor(process: str, state: ChainState) -> None:
    """Send the signal, and append to the file of `ANCHOR`, after rows were committed.

    Failures are logged: recording goes on, and the next line covers the same rows.
    """
    if state.at is None:
        return
    values = {"process": process, "number": state.number, "digest": state.digest}
    chain_sealed.send_robust(sender=ChainState, at=state.at, **values)
    path = get_settings().anchor
    if not path:
        return
    line = json.dumps({"at": state.at.isoformat(), **values}) + "\n"
    try:
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
        try:
            os.write(fd, line.encode())  # one write, so that lines of several processes do not mix
        finally:
            os.close(fd)
    except OSError as error:
        logger.error("The anchor %s cannot be written: %s", path, error.strerror)


def read_anchors(paths: Iterable[str | Path]) -> Iterator[Anchor]:
    """Yield the anchors of files. Raises UnreadableAnchor and OSError."""
    for path in paths:
        with Path(path).open(encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(lines, start=1):
                anchor = _parse(line)
                if anchor is None:
                    raise UnreadableAnchor(f"line {number} of {path} is not an anchor: {line.strip()[:100]!r}")
                yield anchor


def _parse(line: str) -> Anchor | None:
    try:
        values = jsonrpc.loads_exactly(line)
        at = parse_datetime(values["at"])
        process, number, found = values["process"], values["number"], values["digest"]
    except (ValueError, TypeError, KeyError):
        return None
    if at is None or at.tzinfo is None or type(process) is not str or type(number) is not int or type(found) is not str:
        return None
    return Anchor(at, process, number, found)
