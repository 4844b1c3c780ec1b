"""Resources, completions, and notifications."""

import json
from typing import Any

from asgiref.sync import async_to_sync

from mcp_django.contrib.memory.mcp_tools import MAX_FACTS_SHOWN
from mcp_django.contrib.memory.models import Fact
from tests.contrib.memory.clients import Client, user_messages
from tests.official_schema import validator


async def test_conversations_and_facts_are_resources(ada: Client) -> None:
    await ada.ok("save_conversation", id="trip", messages=user_messages(*map(str, range(150))), metadata={"k": "é"})
    content = await ada.read("memory://conversations/trip")
    kept = json.loads(content["text"])
    assert content["mimeType"] == "application/json"
    assert (len(kept["messages"]), kept["metadata"], kept["earlier"]) == (150, {"k": "é"}, 0)

    for number in range(3):
        await ada.ok("save_user_fact", text=f"Fact {number}")
    kept = json.loads((await ada.read("memory://facts"))["text"])
    assert [fact["text"] for fact in kept["facts"]] == ["Fact 2", "Fact 1", "Fact 0"]
    assert kept["total"] == 3


async def test_the_resource_shows_the_latest_of_many_facts_with_a_note(ada: Client) -> None:
    saved = await ada.ok("save_user_fact", text="One")
    row = await Fact.objects.aget(name=saved["fact"]["id"])
    rows = [Fact(owner_id=row.owner_id, name=f"f{number}", text=f"{number}") for number in range(MAX_FACTS_SHOWN)]
    await Fact.objects.abulk_create(rows)
    kept = json.loads((await ada.read("memory://facts"))["text"])
    assert (len(kept["facts"]), kept["total"]) == (MAX_FACTS_SHOWN, MAX_FACTS_SHOWN + 1)


async def test_the_listed_resources_are_valid(ada: Client) -> None:
    (listed,) = (await ada.request("resources/list"))["resources"]
    (template,) = (await ada.request("resources/templates/list"))["resourceTemplates"]
    validator("2026-07-28", "Resource")(listed)
    validator("2026-07-28", "ResourceTemplate")(template)
    assert (listed["uri"], template["uriTemplate"]) == ("memory://facts", "memory://conversations/{id}")


async def test_an_id_is_completed_by_the_title(ada: Client) -> None:
    await ada.ok("save_conversation", id="one", messages=[], title="Trip to Tromsø")
    await ada.ok("save_conversation", id="two", messages=[], title="Trip to Oslo")
    assert await ada.complete("") == ["two", "one"]
    assert await ada.complete("trip") == ["two", "one"]
    assert await ada.complete("TROMSØ tr") == ["one"]
    assert await ada.complete("tw") == ["two"]
    assert await ada.complete("o") == ["two", "one"]
    for value in ("%", "_", "..", "\0", "'", "nowhere"):
        assert await ada.complete(value) == []


def test_only_the_owner_s_clients_are_notified_on_commit(ada: Client, bob: Client, collect_notifications: Any) -> None:
    def use(client: Client, tool: str, **arguments: Any) -> None:
        async_to_sync(client.call)(tool, **arguments)

    ours, theirs = ada.principal.owner, bob.principal.owner
    with collect_notifications() as news:
        use(ada, "save_conversation", id="c", messages=user_messages("x"))
        use(ada, "save_user_fact", text="x", id="f")
        use(bob, "save_user_fact", text="x", id="f")
    assert news == [(ours, "memory://conversations/c"), (ours, "memory://facts"), (theirs, "memory://facts")]
    with collect_notifications() as news:
        use(bob, "delete_conversation", id="c")
        use(ada, "delete_conversation", id="c")
        use(ada, "delete_user_fact", id="f")
        use(ada, "delete_user_fact", id="f")
    assert news == [(ours, "memory://conversations/c"), (ours, "memory://facts")]
    with collect_notifications() as news:
        use(ada, "save_user_fact", text="a\0b")
        use(ada, "get_user_facts")
    assert news == []
