"""The counting that the other tests here rest on."""

import pytest

from tests.workers.ledger import Difference, Ledger, Said, total


def ledger() -> Ledger:
    book = Ledger()
    book.certain["a"] += [1, 2, 4]
    book.unsure["a"] |= {3}
    book.certain["b"] += [1]
    return book


@pytest.mark.parametrize(
    ("heard", "difference"),
    [
        ("a1 a2 a3 a4 b1", Difference()),
        ("b1 a1 a2 a4", Difference()),
        ("a1 a2 b1", Difference(lost=1)),
        ("a1 a2 a2 a4 b1", Difference(duplicated=1)),
        ("a1 a4 a2 b1", Difference(reordered=1)),
        ("a1 a2 a4 b1 a2", Difference(duplicated=1, reordered=1)),
        ("a1 a2 a4 a5 b1", Difference(strange=1)),
        ("a1 a2 a4 b1 c1", Difference(strange=1)),
        ("", Difference(lost=4)),
    ],
)
def test_every_kind_of_wrong_is_counted(heard: str, difference: Difference) -> None:
    said = [Said(word[0], int(word[1:])) for word in heard.split()]
    assert ledger().compare(said, {"a", "b"}) == difference


def test_what_was_for_somebody_else_is_strange() -> None:
    assert ledger().compare([Said("a", 1), Said("b", 1)], {"b"}) == Difference(strange=1)


def test_hearers_are_added_up() -> None:
    assert total([Difference(1, 2), Difference(1, 0, 1)]) == Difference(2, 2, 1)
