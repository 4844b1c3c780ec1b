"""Expiry of conversations and facts."""

from collections.abc import Callable
from datetime import datetime, timedelta
from io import StringIO

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.utils import timezone

from mcp_django import conf
from mcp_django.contrib.memory.conversations import ConversationStore
from mcp_django.contrib.memory.facts import FactStore
from mcp_django.contrib.memory.models import Conversation, Fact, Owner
from tests.contrib.memory.clients import Client, user_messages

Options = Callable[..., None]
DAY = timedelta(days=1)


def let_expire() -> None:
    """Let every row with an expiry expire."""
    for model in (Conversation, Fact):
        model.objects.exclude(expires=None).update(expires=timezone.now())


def days_left(expires: datetime | None) -> float | None:
    return None if expires is None else round((expires - timezone.now()) / DAY, 2)


async def test_expired_rows_are_shown_nowhere(ada: Client) -> None:
    await ada.ok("save_conversation", id="c", messages=user_messages("old"), title="Old", expires_in_days=1)
    await ada.ok("save_user_fact", id="f", text="Old", expires_in_days=0.5)
    assert (await ada.ok("get_conversation", id="c"))["expires"]
    for model in (Conversation, Fact):
        await model.objects.aupdate(expires=timezone.now())
    assert "Unknown conversation" in await ada.error("get_conversation", id="c")
    assert (await ada.ok("list_conversations"))["total"] == 0
    assert (await ada.ok("get_user_facts"))["total"] == 0
    assert (await ada.ok("search_user_facts", query="old"))["total"] == 0
    assert await ada.complete("old") == []
    assert '"total":0' in (await ada.read("memory://facts"))["text"]
    assert await ada.ok("delete_user_fact", id="f") == {"deleted": False}
    assert await ada.ok("delete_conversation", id="c") == {"deleted": False}


async def test_saving_under_an_expired_id_starts_a_new_conversation(ada: Client) -> None:
    await ada.ok("save_conversation", id="c", messages=user_messages("old"), title="Old", expires_in_days=1)
    await Conversation.objects.aupdate(expires=timezone.now())
    saved = await ada.ok("save_conversation", id="c", mode="append", messages=user_messages("new"))
    assert (saved["created"], saved["message_count"], saved["title"], saved["expires"]) == (True, 1, "new", None)


def test_each_save_restarts_the_expiry(db: None) -> None:
    facts = FactStore("as|1")
    facts.save("x", id="f", days=2)
    Fact.objects.update(expires=timezone.now() + DAY)
    row, _ = facts.save("y", id="f")
    assert days_left(row.expires) == 2
    row, _ = facts.save("y", id="f", days=3)
    assert days_left(row.expires) == 3


def test_the_project_limits_the_expiry(db: None, options: Options) -> None:
    options(FACT_DAYS=10, CONVERSATION_DAYS=0.5)
    facts, conversations = FactStore("as|1"), ConversationStore("as|1")
    assert days_left(facts.save("x")[0].expires) == 10
    assert days_left(facts.save("x", days=3)[0].expires) == 3
    assert days_left(facts.save("x", days=30)[0].expires) == 10
    assert days_left(conversations.save([]).row.expires) == 0.5


def test_expired_rows_count_for_no_quota(db: None, options: Options) -> None:
    options(FACTS_PER_OWNER=1)
    FactStore("as|1").save("old", days=1)
    let_expire()
    FactStore("as|1").save("new")
    assert [fact.text for fact in Fact.objects.all()] == ["new"]


def test_the_command_deletes_expired_rows_and_empty_owners(db: None) -> None:
    FactStore("as|1").save("old", days=1)
    ConversationStore("as|1").save([], days=1)
    FactStore("as|2").save("old", days=1)
    FactStore("as|2").save("lasting")
    let_expire()
    FactStore("as|3").save("later", days=1)
    out = StringIO()
    call_command("mcp_memory_expire", stdout=out)
    assert out.getvalue() == "Deleted conversations: 1, facts: 2, owners without data: 1.\n"
    assert sorted(owner.key for owner in Owner.objects.all()) == ["as|2", "as|3"]
    assert sorted(fact.text for fact in Fact.objects.all()) == ["lasting", "later"]


def test_an_empty_owner_is_deleted_and_may_save_again(db: None) -> None:
    facts = FactStore("as|1")
    facts.save("x", id="f")
    facts.delete("f")
    call_command("mcp_memory_expire", stdout=StringIO())
    assert not Owner.objects.exists()
    assert facts.delete("f") is False
    assert not Owner.objects.exists()
    facts.save("x", id="f")


def test_invalid_numbers_of_days_are_refused(options: Options, subtests: pytest.Subtests) -> None:
    for days in (0, -1, 36_501, True, "1", float("nan")):
        with subtests.test(days=days):
            options(FACT_DAYS=days)
            with pytest.raises(
                ImproperlyConfigured, match=r'MCP\["MEMORY"\]\["FACT_DAYS"\] must be None or a number of days'
            ):
                conf.get_settings()
