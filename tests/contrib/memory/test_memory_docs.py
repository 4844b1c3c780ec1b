"""The examples of docs/expose/memory.md, run."""

import pytest
from django.contrib.auth.models import User

from mcp_django import owner_of
from mcp_django.auth.principal import local_principal
from mcp_django.contrib.memory.facts import FactStore
from mcp_django.contrib.memory.models import Owner
from mcp_django.contrib.memory.options import MemorySettings
from tests.repository.pages import ROOT, python_blocks, served_by

PAGE = ROOT / "docs" / "expose" / "memory.md"
pytestmark = pytest.mark.django_db


def test_the_examples_work(monkeypatch: pytest.MonkeyPatch) -> None:
    ada = User.objects.create_user("ada")
    example, orders, account = (served_by(block, monkeypatch)[0] for block in python_blocks(PAGE))
    FactStore(owner_of(ada), ada).save("Travels without luggage.")
    plan = example.plan_trip("Oslo", local_principal(ada))
    assert plan == "Plan a trip to Oslo. Keep in mind: Travels without luggage."
    orders.note_order(ada, 7)
    orders.note_order(ada, 7)
    assert orders.last_conversations(ada) == []
    assert [fact["id"] for fact in account.close_account(ada)["owners"][0]["facts"]][1:] == ["order-7"]
    assert not Owner.objects.exists()


def test_every_option_is_on_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert not [name for name in MemorySettings.__dataclass_fields__ if f"`{name.upper()}`" not in page]
