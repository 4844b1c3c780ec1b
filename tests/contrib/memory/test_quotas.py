"""Quotas of rows and bytes, which are exact with simultaneous writers."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.db.models import Sum
from django.utils import translation

from mcp_django.contrib.memory.conversations import ConversationStore
from mcp_django.contrib.memory.facts import FactStore
from mcp_django.contrib.memory.models import Conversation, Fact, Owner
from mcp_django.contrib.memory.validation import MemoryFull
from tests.contrib.memory.clients import Client, user_messages

Options = Callable[..., None]


def kept_bytes() -> int:
    return sum(model.objects.aggregate(n=Sum("size"))["n"] or 0 for model in (Conversation, Fact))


async def test_rows_of_each_kind_are_limited(ada: Client, bob: Client, options: Options) -> None:
    options(CONVERSATIONS_PER_OWNER=2, FACTS_PER_OWNER=1)
    for number in range(2):
        await ada.ok("save_conversation", id=f"c{number}", messages=[])
    assert "At most 2 conversations can be saved" in await ada.error("save_conversation", messages=[])
    await ada.ok("save_user_fact", text="One", id="one")
    assert "At most 1 facts can be saved" in await ada.error("save_user_fact", text="Two")
    await ada.ok("save_conversation", id="c1", messages=user_messages("more"))
    await ada.ok("save_user_fact", text="Two", id="one")
    await bob.ok("save_user_fact", text="Bob's")
    await ada.ok("delete_conversation", id="c0")
    await ada.ok("save_conversation", messages=[])
    assert (await Conversation.objects.acount(), await Fact.objects.acount()) == (2, 2)


def test_an_error_for_clients_is_english_in_every_language(db: None, options: Options) -> None:
    options(FACTS_PER_OWNER=1)
    FactStore("as|1").save("x")
    with translation.override("de"), pytest.raises(MemoryFull, match="At most 1 facts can be saved"):
        FactStore("as|1").save("y")


def test_total_bytes_are_limited(db: None, options: Options) -> None:
    options(BYTES_PER_OWNER=300)
    facts, conversations = FactStore("as|1"), ConversationStore("as|1")
    facts.save("é" * 100, id="f")
    assert kept_bytes() == 200
    conversations.save(user_messages("x"), id="c", title="t")
    left = 300 - kept_bytes()
    conversations.save(user_messages("x" * (left + 1)), id="c", title="t")
    assert kept_bytes() == 300
    for write in (
        lambda: conversations.save(user_messages("x"), id="c", mode="append"),
        lambda: conversations.save([], metadata={"k": 1}, id="c", mode="append"),
        lambda: facts.save("x"),
        lambda: facts.save("é" * 100, id="f", tags=["t"]),
    ):
        with pytest.raises(MemoryFull, match="more than the maximum of 300"):
            write()
    assert kept_bytes() == 300
    facts.save("x", id="f")
    FactStore("as|2").save("x" * 300)


def test_one_conversation_is_limited(db: None, options: Options) -> None:
    options(BYTES_PER_CONVERSATION=1000)
    conversations = ConversationStore("as|1")
    conversations.save(user_messages("x" * 900), id="c", title="c")
    with pytest.raises(Exception, match="more than the maximum of 1000"):
        conversations.save(user_messages("x" * 100), id="c", mode="append")
    row = conversations.get("c")
    assert row is not None
    assert row.message_count == 1


def test_rows_deleted_outside_of_the_tools_do_not_count(db: None, options: Options) -> None:
    options(FACTS_PER_OWNER=1)
    for _ in range(3):
        FactStore("as|1").save("x")
        Fact.objects.all().delete()
    FactStore("as|1").save("y")


def race(*work: Callable[[], Any]) -> list[Any]:
    """Run functions at once, each in a thread with its own connection. Return the results and exceptions."""
    outcomes: list[Any] = []
    barrier = threading.Barrier(len(work), timeout=60)

    def run(one: Callable[[], Any]) -> None:
        try:
            barrier.wait()
            outcomes.append(one())
        except Exception as problem:
            outcomes.append(problem)
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(one,)) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return outcomes


@pytest.mark.django_db(transaction=True)
def test_the_quotas_are_exact_with_simultaneous_writers(options: Options) -> None:
    options(FACTS_PER_OWNER=5, BYTES_PER_OWNER=1000)
    writes = [lambda number=number: FactStore("as|1").save(f"Fact {number}") for number in range(8)]
    outcomes = race(*writes)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["MemoryFull"] * 3 + ["tuple"] * 5
    assert (Fact.objects.count(), Owner.objects.count()) == (5, 1)


@pytest.mark.django_db(transaction=True)
def test_simultaneous_appends_are_all_stored() -> None:
    conversations = ConversationStore("as|1")
    writes = [
        lambda number=number: conversations.save(user_messages(f"{number}"), id="c", mode="append")
        for number in range(6)
    ]
    assert not [outcome for outcome in race(*writes) if isinstance(outcome, Exception)]
    row = conversations.get("c")
    assert row is not None
    assert sorted(message["content"] for message in row.messages) == [str(number) for number in range(6)]
