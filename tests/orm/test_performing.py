"""The transaction of a write, and its key where the two are not in one database."""

from typing import Any

import pytest

from mcp_django import ToolError
from mcp_django.orm.writes.transaction import run_write
from tests.shop.models import Tag

pytestmark = pytest.mark.django_db


class Elsewhere:
    """A key whose row is in another database."""

    using = "elsewhere"

    def __init__(self, *, free: bool = True) -> None:
        self.free = free
        self.calls: list[str] = []
        self.kept: Any = None

    def claim(self) -> bool:
        self.calls.append("claim")
        return self.free

    def get_result(self) -> Any:
        return "the first answer"

    def store_result(self, value: Any) -> None:
        self.calls.append("store_result")
        self.kept = value

    def release(self) -> None:
        self.calls.append("release")


def add() -> dict[str, int]:
    Tag.objects.create(name="hot")
    return {"tags": Tag.objects.count()}


def fail() -> None:
    Tag.objects.create(name="hot")
    raise ToolError("no")


def test_a_write_is_claimed_before_it_runs_and_settled_after_it() -> None:
    key: Any = Elsewhere()
    assert run_write(add, using="default", idempotent_write=key) == {"tags": 1}
    assert (key.calls, key.kept) == (["claim", "store_result"], {"tags": 1})


def test_a_repeated_write_does_nothing() -> None:
    key: Any = Elsewhere(free=False)
    assert run_write(add, using="default", idempotent_write=key) == "the first answer"
    assert not Tag.objects.exists()


def test_a_rollback_releases_the_key() -> None:
    key: Any = Elsewhere()
    with pytest.raises(ToolError):
        run_write(fail, using="default", idempotent_write=key)
    assert key.calls == ["claim", "release"]
    assert not Tag.objects.exists()


def test_without_a_transaction_the_outcome_is_unknown() -> None:
    key: Any = Elsewhere()
    with pytest.raises(ToolError):
        run_write(fail, using="default", idempotent_write=key, atomic=False)
    assert key.calls == ["claim"]
    assert Tag.objects.exists()
