"""The counting that the other tests here rest on."""

import pytest

from tests.workers.event_log import Difference, EventLog, NumberedMessage, total

DIFFERENCES = {
    "a1 a2 a3 a4 b1": Difference(),
    "b1 a1 a2 a4": Difference(),
    "a1 a2 b1": Difference(lost=1),
    "a1 a2 a2 a4 b1": Difference(duplicated=1),
    "a1 a4 a2 b1": Difference(reordered=1),
    "a1 a2 a4 b1 a2": Difference(duplicated=1, reordered=1),
    "a1 a2 a4 a5 b1": Difference(unexpected=1),
    "a1 a2 a4 b1 c1": Difference(unexpected=1),
    "": Difference(lost=4),
}
"""What a listener received, where a1, a2, a4 and b1 were published and perhaps a3."""


def published() -> EventLog:
    log = EventLog()
    log.confirmed["a"] += [1, 2, 4]
    log.uncertain["a"] |= {3}
    log.confirmed["b"] += [1]
    return log


def test_every_kind_of_difference_is_counted(subtests: pytest.Subtests) -> None:
    for received, difference in DIFFERENCES.items():
        with subtests.test(received):
            messages = [NumberedMessage(word[0], int(word[1:])) for word in received.split()]
            assert published().compare(messages, {"a", "b"}) == difference


def test_a_message_for_another_listener_is_unexpected() -> None:
    messages = [NumberedMessage("a", 1), NumberedMessage("b", 1)]
    assert published().compare(messages, {"b"}) == Difference(unexpected=1)


def test_differences_are_added_up() -> None:
    assert total([Difference(1, 2), Difference(1, 0, 1)]) == Difference(2, 2, 1)
