"""Published messages, received messages, and the difference."""

import itertools
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple


class NumberedMessage(NamedTuple):
    """A message with a number of its source."""

    source: str
    number: int


class Difference(NamedTuple):
    """Counts of messages that went wrong, over all listeners."""

    lost: int = 0
    duplicated: int = 0
    reordered: int = 0
    unexpected: int = 0
    """Received by a listener that they were not for, or never published."""


class EventLog:
    """Numbers that each source has published, by their outcome."""

    def __init__(self) -> None:
        self.confirmed: dict[str, list[int]] = defaultdict(list)
        """Numbers that the server has confirmed to their publisher, in the order of publishing."""
        self.uncertain: dict[str, set[int]] = defaultdict(set)
        """Numbers whose publisher was cut off before it got an answer: they are published, or they are not."""

    def compare(self, received: Iterable[NumberedMessage], sources: Iterable[str]) -> Difference:
        """Compare the messages of one listener, which these sources are for, with those that were published."""
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
