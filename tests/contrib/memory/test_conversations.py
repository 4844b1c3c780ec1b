"""Conversations through the tools."""

import functools
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError

from mcp_django.contrib.memory.conversations import ConversationStore
from mcp_django.contrib.memory.facts import FactStore
from mcp_django.contrib.memory.models import Conversation
from tests.contrib.memory.clients import Client, user_client, user_messages
from tests.official_schema import validator
from tests.support.savepoints import rolled_back


async def test_a_conversation_is_saved_and_found_again(ada: Client) -> None:
    messages = [
        {"role": "user", "content": "Where to?", "id": "1", "name": "Ada", "time": "2030-01-01T10:00:00Z"},
        {"role": "assistant", "content": [{"type": "text", "text": "Oslo"}]},
    ]
    saved = await ada.ok("save_conversation", messages=messages, tags=["Travel", "travel "], metadata={"n": [1, None]})
    assert (saved["created"], saved["title"], saved["message_count"], saved["added"]) == (True, "Where to?", 2, 2)
    kept = await ada.ok("get_conversation", id=saved["id"])
    nothing = {"id": None, "name": None, "time": None}
    assert kept["messages"] == [{**nothing, **message} for message in messages]
    assert (kept["tags"], kept["metadata"], kept["earlier"]) == (["travel"], {"n": [1, None]}, 0)
    assert kept["created"] <= kept["updated"]


async def test_another_client_of_the_same_user_finds_it(ada: Client) -> None:
    saved = await ada.ok("save_conversation", messages=user_messages("Hello"))
    other = user_client(await User.objects.aget(username="ada"), client_id="another")
    assert (await other.ok("get_conversation", id=saved["id"]))["title"] == "Hello"


async def test_replacing_is_idempotent(ada: Client) -> None:
    arguments: dict[str, Any] = {"id": "trip", "messages": user_messages("One", "Two"), "title": "Trip"}
    first, second = [await ada.ok("save_conversation", **arguments) for _ in range(2)]
    assert (first["created"], second["created"]) == (True, False)
    assert {**first, "created": False} == second
    await ada.ok("save_conversation", id="trip", messages=user_messages("Three"))
    kept = await ada.ok("get_conversation", id="trip")
    assert ([message["content"] for message in kept["messages"]], kept["title"]) == (["Three"], "Trip")


async def test_appending_leaves_out_existing_message_ids(ada: Client) -> None:
    one, two = ({"role": "user", "content": text, "id": text} for text in ("one", "two"))
    await ada.ok("save_conversation", id="trip", mode="append", messages=[one])
    again = await ada.ok("save_conversation", id="trip", mode="append", messages=[one, two, two])
    assert (again["added"], again["message_count"]) == (1, 2)
    unnamed = await ada.ok("save_conversation", id="trip", mode="append", messages=user_messages("one", "one"))
    assert (unnamed["added"], unnamed["message_count"]) == (2, 4)


async def test_omitted_fields_are_unchanged(ada: Client) -> None:
    await ada.ok(
        "save_conversation", id="trip", messages=user_messages("x"), title="Trip", tags=["a"], metadata={"k": 1}
    )
    await ada.ok("save_conversation", id="trip", messages=[], mode="append", tags=[])
    kept = await ada.ok("get_conversation", id="trip")
    assert (kept["title"], kept["tags"], kept["metadata"], kept["message_count"]) == ("Trip", [], {"k": 1}, 1)


async def test_a_long_conversation_is_returned_from_its_end(ada: Client) -> None:
    await ada.ok("save_conversation", id="long", messages=user_messages(*map(str, range(10))))
    end = await ada.ok("get_conversation", id="long", last=4)
    assert ([message["content"] for message in end["messages"]], end["earlier"]) == (["6", "7", "8", "9"], 6)
    before = await ada.ok("get_conversation", id="long", last=4, skip=4)
    assert ([message["content"] for message in before["messages"]], before["earlier"]) == (["2", "3", "4", "5"], 2)
    assert (await ada.ok("get_conversation", id="long", skip=99))["messages"] == []


async def test_the_list_is_paged_from_the_latest_on(ada: Client) -> None:
    for number in range(5):
        await ada.ok("save_conversation", id=f"c{number}", messages=user_messages("x"))
    await ada.ok("save_conversation", id="c1", messages=user_messages("y"))
    found, cursor = [], None
    while True:
        page = await ada.ok("list_conversations", limit=2, **({"cursor": cursor} if cursor else {}))
        assert (page["total"], len(page["conversations"]) <= 2) == (5, True)
        found += [entry["id"] for entry in page["conversations"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert found == ["c1", "c4", "c3", "c2", "c0"]


async def test_rows_saved_at_the_same_moment_are_paged_once_each(ada: Client) -> None:
    for number in range(5):
        await ada.ok("save_conversation", id=f"c{number}", messages=user_messages("x"))
    moment = (await Conversation.objects.afirst()).updated  # type: ignore[union-attr]
    await Conversation.objects.aupdate(updated=moment)
    first = await ada.ok("list_conversations", limit=3)
    rest = await ada.ok("list_conversations", limit=3, cursor=first["next_cursor"])
    ids = [entry["id"] for page in (first, rest) for entry in page["conversations"]]
    assert sorted(ids) == [f"c{number}" for number in range(5)]


async def test_the_list_can_be_narrowed_by_words_and_tags(ada: Client) -> None:
    await ada.ok("save_conversation", id="a", messages=user_messages("x"), title="Zürich by train", tags=["Reise_1"])
    await ada.ok("save_conversation", id="b", messages=user_messages("x"), title="Oslo by train", tags=["ReiseX1"])
    await ada.ok("save_conversation", id="c", messages=user_messages("x"), title="A 100% tax")

    async def ids(**filters: Any) -> list[str]:
        page = await ada.ok("list_conversations", **filters)
        assert page["total"] == len(page["conversations"])
        return sorted(entry["id"] for entry in page["conversations"])

    assert await ids(query="ZURICH tra") == ["a"]
    assert await ids(query="train") == ["a", "b"]
    assert await ids(query="rain") == []
    assert await ids(query="00") == []
    assert await ids(query="%") == []
    assert await ids(query="1%") == ["c"]
    assert await ids(tag="reise_1") == ["a"]
    assert await ids(tag="reise") == []
    assert await ids(tag="reisex1", query="oslo") == ["b"]


async def test_to_delete_twice_is_no_error(ada: Client) -> None:
    await ada.ok("save_conversation", id="trip", messages=user_messages("x"))
    assert [await ada.ok("delete_conversation", id="trip") for _ in range(2)] == [{"deleted": True}, {"deleted": False}]
    assert not await Conversation.objects.aexists()
    assert await ada.error("get_conversation", id="trip") == (
        "Unknown conversation. Call list_conversations to see the saved ones."
    )


def test_invalid_values_are_refused_with_the_reason(ada: Client, subtests: pytest.Subtests) -> None:
    async def check(arguments: dict[str, Any], complaint: str) -> None:
        assert complaint in await ada.error("save_conversation", **arguments)
        assert not await Conversation.objects.aexists()

    cases = (
        ({"messages": user_messages("a\0b")}, "U+0000 cannot be stored; remove it."),
        ({"messages": [{"role": "user", "content": [{"a\0": 1}]}]}, "U+0000 cannot be stored; remove it."),
        ({"messages": [], "metadata": {"deep": [{"x": "\0"}]}}, "U+0000 cannot be stored; remove it."),
        ({"messages": [], "title": "\0"}, "U+0000 cannot be stored; remove it."),
        ({"messages": [], "tags": ["\0"]}, "U+0000 cannot be stored; remove it."),
        ({"messages": [{"role": "king", "content": "x"}]}, "role"),
        ({"messages": [{"role": "user"}]}, "content"),
        ({"messages": [{"role": "user", "content": "x", "user_id": 7}]}, "user_id"),
        ({"messages": [{"role": "user", "content": "x", "id": 7}]}, "id"),
        ({"messages": [], "user_id": 7}, "user_id"),
        ({"messages": [], "owner": "django|1"}, "owner"),
        ({"messages": [], "principal": {"owner": "django|1"}}, "principal"),
        ({"messages": [], "id": "../x"}, "id"),
        ({"messages": [], "id": "a" * 101}, "id"),
        ({"messages": [], "id": "a/b"}, "id"),
        ({"messages": [], "expires_in_days": 0}, "expires_in_days"),
        ({"messages": [], "expires_in_days": 1e300}, "expires_in_days"),
        ({"messages": [], "title": "x" * 201}, "title"),
        ({"messages": [], "tags": ["x"] * 21}, "tags"),
    )
    for arguments, complaint in cases:
        with subtests.test(arguments=arguments, complaint=complaint), rolled_back():
            async_to_sync(check)(arguments, complaint)


def test_python_callers_get_errors_for_invalid_messages(db: None, subtests: pytest.Subtests) -> None:
    cases = (
        {"role": "user", "content": "x", "id": [1]},
        {"role": "user", "content": None},
        {"role": "king", "content": "x"},
        {"role": "user", "content": "x", "other": 1},
        {"role": "user", "content": [float("nan")]},
        {"role": "user", "content": [object()]},
        {"role": "user", "content": functools.reduce(lambda value, _: [value], range(150), [])},
        {"role": "user", "content": "\ud800"},
    )
    for message in cases:
        with subtests.test(message=message), rolled_back(), pytest.raises(ValidationError):
            ConversationStore("as|1").save([message])


def test_reading_takes_one_statement_and_a_list_two(db: None, django_assert_num_queries: Any) -> None:
    conversations, facts = ConversationStore("as|1"), FactStore("as|1")
    for number in range(3):
        conversations.save(user_messages(f"{number}"), id=f"c{number}", tags=["t"])
        facts.save(f"Fact {number}", tags=["t"])
    with django_assert_num_queries(1):
        assert conversations.get("c1")
    for page in (
        lambda: conversations.page(query="1", tag="t"),
        lambda: facts.page(tag="t"),
        lambda: facts.search("fact"),
    ):
        with django_assert_num_queries(2):
            assert all(row.tag_list == ["t"] for row in page().rows)


async def test_a_cursor_is_valid_for_its_own_list_only(ada: Client) -> None:
    for number in range(3):
        await ada.ok("save_conversation", id=f"c{number}", messages=user_messages("x"), tags=["t"])
        await ada.ok("save_user_fact", text=f"Fact {number}")
    cursor = (await ada.ok("list_conversations", limit=1))["next_cursor"]
    wrong = "The cursor is invalid for this list. Omit it to start with the first page."
    for tool, arguments in [
        ("list_conversations", {"tag": "t"}),
        ("list_conversations", {"query": "x"}),
        ("get_user_facts", {}),
        ("search_user_facts", {"query": "fact"}),
    ]:
        assert await ada.error(tool, cursor=cursor, **arguments) == wrong
    for made_up in ("", "x", "é", cursor[:-1], cursor + "x", "W10:1:x", "\0"):
        assert await ada.error("list_conversations", cursor=made_up) == wrong


async def test_every_tool_has_descriptions_an_output_schema_and_annotations(ada: Client) -> None:
    tools = {tool["name"]: tool for tool in (await ada.request("tools/list"))["tools"]}
    assert sorted(tools) == [
        "delete_conversation",
        "delete_user_fact",
        "get_conversation",
        "get_user_facts",
        "list_conversations",
        "save_conversation",
        "save_user_fact",
        "search_user_facts",
    ]
    for name, tool in tools.items():
        validator("2026-07-28", "Tool")(tool)
        assert "outputSchema" in tool
        properties = tool["inputSchema"]["properties"]
        assert not {"principal", "owner", "user", "user_id"} & properties.keys()
        assert all(described.get("description") for described in properties.values()), name
        hints = tool["annotations"]
        assert hints["readOnlyHint"] is name.startswith(("get_", "list_", "search_"))
        assert hints.get("idempotentHint", False) is (name.startswith("delete_") or name == "save_user_fact")
        assert hints.get("destructiveHint", False) is not hints["readOnlyHint"]
