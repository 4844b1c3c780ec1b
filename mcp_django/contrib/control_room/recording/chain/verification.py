"""Verification of the chains of all processes."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import NamedTuple

from django.utils import timezone

from mcp_django.contrib.control_room.models import CallLogEntry, ChainHead
from mcp_django.contrib.control_room.options import get_settings
from mcp_django.contrib.control_room.recording.chain.anchors import Anchor
from mcp_django.contrib.control_room.recording.chain.heads import START_PROCESS, is_genuine_head
from mcp_django.contrib.control_room.recording.chain.seals import CURRENT_FORM, UNSEALED, Seal

RETENTION_SLACK = timedelta(hours=2)
"""Time by which a row may be deleted before the end of its retention."""


class ChainProblem(NamedTuple):
    """Finding of the verification."""

    kind: str
    """"altered", "removed" or "inserted"."""
    process: str
    text: str


def verify_chain(alias: str, anchors: Iterable[Anchor] = ()) -> Iterator[ChainProblem]:
    """Yield the problems of all chains, and those of rows that differ from the anchors."""
    yield from _Verification(alias, list(anchors)).verify()


class _Verification:
    """Verification of one database."""

    def __init__(self, alias: str, anchors: list[Anchor]) -> None:
        self._rows = CallLogEntry.objects.using(alias)
        self._heads = ChainHead._default_manager.using(alias)
        self._kept_since = timezone.now() - timedelta(days=get_settings().keep["calls"]) + RETENTION_SLACK
        self._anchors: dict[str, list[Anchor]] = defaultdict(list)
        for anchor in anchors:
            self._anchors[anchor.process].append(anchor)
        self._sealed_since = [anchor.at for anchor in anchors]
        """Times after which rows are sealed."""
        self._has_current_form = False
        self._has_seals = False

    def verify(self) -> Iterator[ChainProblem]:
        # The heads come first, so that rows that are written in the meantime are not missing.
        heads = {head.process: head for head in self._heads}
        start = heads.pop(START_PROCESS, None)
        has_heads = bool(heads)
        rows = self._rows.exclude(UNSEALED).order_by("process", "pk").iterator()
        for process, group in groupby(rows, key=lambda row: row.process):
            yield from self._verify_process(process, group, heads.pop(process, None))
        for process, head in heads.items():
            if not is_genuine_head(head) and head.seal:
                yield ChainProblem("altered", process, "the row with the last number does not fit its seal")
            elif head.at >= self._kept_since:
                yield ChainProblem("removed", process, f"all rows up to number {head.number} are missing")
        for process in list(self._anchors):
            yield from self._compare_anchors(process, {})
        yield from self._verify_start(start, has_heads=has_heads)
        yield from self._find_unsealed()

    def _verify_process(
        self, process: str, rows: Iterator[CallLogEntry], head: ChainHead | None
    ) -> Iterator[ChainProblem]:
        wanted = frozenset(anchor.number for anchor in self._anchors.get(process, ()))
        chain = _ProcessChain(process, self._kept_since, wanted)
        yield from chain.verify(rows)
        self._sealed_since += chain.times
        self._has_current_form |= chain.has_current_form
        self._has_seals = True
        last = chain.last
        if last is not None and (head is None or head.number < last.number):
            head = self._heads.filter(process=process).first()  # the rows may be later than the first reading
        if head is None:
            yield ChainProblem("removed", process, "the row with the last number is missing")
        elif not is_genuine_head(head) and (head.seal or chain.has_current_form):
            yield ChainProblem("altered", process, "the row with the last number does not fit its seal")
        elif last is not None and head.number > last.number:
            yield ChainProblem("removed", process, f"rows at the end are missing, up to number {head.number}")
        elif last is not None and head.number < last.number:
            text = f"the row with the last number ends at {head.number}, before the row with number {last.number}"
            yield ChainProblem("altered", process, text)
        yield from self._compare_anchors(process, chain.digests)

    def _compare_anchors(self, process: str, digests: dict[int, str]) -> Iterator[ChainProblem]:
        for anchor in self._anchors.pop(process, ()):
            if anchor.number in digests:
                if digests[anchor.number] != anchor.digest:
                    yield ChainProblem(
                        "altered", process, f"the row with number {anchor.number} differs from the anchor"
                    )
            elif anchor.at >= self._kept_since:
                yield ChainProblem("removed", process, f"the row with number {anchor.number} of the anchor is missing")

    def _verify_start(self, start: ChainHead | None, *, has_heads: bool) -> Iterator[ChainProblem]:
        if start is not None and is_genuine_head(start):
            self._sealed_since.append(start.at)
        elif start is not None:
            yield ChainProblem(
                "altered", START_PROCESS, "the row with the time of the first seal does not fit its seal"
            )
        elif self._has_current_form:
            yield ChainProblem("removed", START_PROCESS, "the row with the time of the first seal is missing")
        # Deletion by age keeps the last end of a chain.
        if not has_heads and not self._has_seals and (get_settings().chain or start is not None):
            text = "no row and no end of a chain is left; before the first call with CHAIN, this is no problem"
            yield ChainProblem("removed", START_PROCESS, text)

    def _find_unsealed(self) -> Iterator[ChainProblem]:
        """Yield the rows without a seal that are later than the first seal of all processes."""
        if not self._sealed_since:
            return
        rows = self._rows.filter(UNSEALED, at__gte=min(self._sealed_since)).order_by("pk")
        for row in rows.iterator():
            yield ChainProblem("inserted", row.process, f"row {row.pk} has no seal")


class _ProcessChain:
    """Verifier of the rows of one process."""

    def __init__(self, process: str, kept_since: datetime, wanted: frozenset[int]) -> None:
        self.process = process
        self.last: Seal | None = None
        """Seal of the last row that was verified."""
        self.digests: dict[int, str] = {}
        """Digests of the wanted rows by number."""
        self.times: list[datetime] = []
        """Earliest time of the rows, if there is one."""
        self.has_current_form = False
        self._kept_since = kept_since
        self._wanted = wanted

    def verify(self, rows: Iterator[CallLogEntry]) -> Iterator[ChainProblem]:
        """Yield the problems of the rows, which are in order."""
        previous: Seal | None = None
        for row in rows:
            self.times = [min(row.at, *self.times)] if self.times else [row.at]
            seal = Seal.parse(row.seal)
            if seal is None or not seal.is_genuine(row):
                is_copy = seal is not None and previous is not None and seal.number <= previous.number
                yield self._report("inserted" if is_copy else "altered", f"row {row.pk} does not fit its seal")
                previous = previous if seal is None else max(seal, previous or seal, key=lambda each: each.number)
                continue
            self.has_current_form |= seal.form == CURRENT_FORM
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
            if seal.number in self._wanted:
                self.digests[seal.number] = seal.digest
        self.last = previous

    def _is_kept(self, at: str) -> bool:
        """Return True if a row of this time should still exist."""
        return datetime.fromtimestamp(int(at) / 1_000_000, UTC) >= self._kept_since

    def _report(self, kind: str, text: str) -> ChainProblem:
        return ChainProblem(kind, self.process, text)
