"""What was said, what was heard, and the difference."""

import itertools
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple


class Said(NamedTuple):
    """One numbered thing."""

    source: str
    number: int


class Difference(NamedTuple):
    """How many messages went wrong, over all hearers."""

    lost: int = 0
    duplicated: int = 0
    reordered: int = 0
    strange: int = 0
    """Heard by somebody they were not for, or never said."""


class Ledger:
    """The sources that number what they say, and what became of each number."""

    def __init__(self) -> None:
        self.certain: dict[str, list[int]] = defaultdict(list)
        """Numbers whose publisher was told that they are out, in the order in which they were said."""
        self.unsure: dict[str, set[int]] = defaultdict(set)
        """Numbers whose publisher was cut off before it was told: they are out, or they are not."""

    def compare(self, heard: Iterable[Said], sources: Iterable[str]) -> Difference:
        """What one hearer, whom these sources are for, should not have missed, or heard twice, late or at all."""
        by_source: dict[str, list[int]] = defaultdict(list)
        for source, number in heard:
            by_source[source].append(number)
        found = Difference()
        for source in {*by_source, *sources}:
            numbers, certain = by_source[source], self.certain[source] if source in sources else []
            unsure = self.unsure[source] if source in sources else set()
            found = Difference(
                found.lost + len({*certain} - {*numbers}),
                found.duplicated + len(numbers) - len({*numbers}),
                found.reordered + sum(later < earlier for earlier, later in itertools.pairwise(numbers)),
                found.strange + len({*numbers} - {*certain} - unsure),
            )
        return found


def total(differences: Iterable[Difference]) -> Difference:
    """The sum over all hearers."""
    return Difference(*map(sum, zip(*differences, strict=True)))
