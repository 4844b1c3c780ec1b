"""What was said, what was received, and the difference."""

import itertools
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple


class NumberedMessage(NamedTuple):
    """One numbered thing."""

    source: str
    number: int


class Difference(NamedTuple):
    """How many messages went wrong, over all listeners."""

    lost: int = 0
    duplicated: int = 0
    reordered: int = 0
    unexpected: int = 0
    """Heard by somebody they were not for, or never said."""


class EventLog:
    """The sources that number what they say, and what became of each number."""

    def __init__(self) -> None:
        self.confirmed: dict[str, list[int]] = defaultdict(list)
        """Numbers whose publisher was told that they are out, in the order in which they were said."""
        self.uncertain: dict[str, set[int]] = defaultdict(set)
        """Numbers whose publisher was cut off before it was told: they are out, or they are not."""

    def compare(self, received: Iterable[NumberedMessage], sources: Iterable[str]) -> Difference:
        """What one listener, whom these sources are for, should not have missed, or received twice, late or at all."""
        by_source: dict[str, list[int]] = defaultdict(list)
        for source, number in received:
            by_source[source].append(number)
        found = Difference()
        for source in {*by_source, *sources}:
            numbers, confirmed = by_source[source], self.confirmed[source] if source in sources else []
            uncertain = self.uncertain[source] if source in sources else set()
            found = Difference(
                found.lost + len({*confirmed} - {*numbers}),
                found.duplicated + len(numbers) - len({*numbers}),
                found.reordered + sum(later < earlier for earlier, later in itertools.pairwise(numbers)),
                found.unexpected + len({*numbers} - {*confirmed} - uncertain),
            )
        return found


def total(differences: Iterable[Difference]) -> Difference:
    """The sum over all listeners."""
    return Difference(*map(sum, zip(*differences, strict=True)))
