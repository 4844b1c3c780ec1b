"""The counting that the other tests here rest on."""

import pytest

from tests.workers.event_log import Difference, EventLog, NumberedMessage, total


def event_log() -> EventLog:
    book = EventLog()
    book.confirmed["a"] += [1, 2, 4]
    book.uncertain["a"] |= {3}
    book.confirmed["b"] += [1]
    return book


@pytest.mark.parametrize(
    ("received", "difference"),
    [
        ("a1 a2 a3 a4 b1", Difference()),
        ("b1 a1 a2 a4", Difference()),
        ("a1 a2 b1", Difference(lost=1)),
        ("a1 a2 a2 a4 b1", Difference(duplicated=1)),
        ("a1 a4 a2 b1", Difference(reordered=1)),
        ("a1 a2 a4 b1 a2", Difference(duplicated=1, reordered=1)),
        ("a1 a2 a4 a5 b1", Difference(unexpected=1)),
        ("a1 a2 a4 b1 c1", Difference(unexpected=1)),
        ("", Difference(lost=4)),
    ],
)
def test_every_kind_of_wrong_is_counted(received: str, difference: Difference) -> None:
    said = [NumberedMessage(word[0], int(word[1:])) for word in received.split()]
    assert event_log().compare(said, {"a", "b"}) == difference


def test_what_was_for_somebody_else_is_strange() -> None:
    assert event_log().compare([NumberedMessage("a", 1), NumberedMessage("b", 1)], {"b"}) == Difference(unexpected=1)


def test_hearers_are_added_up() -> None:
    assert total([Difference(1, 2), Difference(1, 0, 1)]) == Difference(2, 2, 1)
