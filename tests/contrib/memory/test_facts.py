"""Facts through the tools, and the search for them."""

from typing import Any

import pytest
from asgiref.sync import async_to_sync

from mcp_django.contrib.memory.models import Fact
from mcp_django.contrib.memory.search import build_index_text, parse_query
from tests.contrib.memory.clients import Client
from tests.support.savepoints import rolled_back


async def texts(client: Client, tool: str = "search_user_facts", **arguments: Any) -> list[str]:
    page = await client.ok(tool, **arguments)
    assert page["total"] >= len(page["facts"])
    return [fact["text"] for fact in page["facts"]]


async def test_a_saved_fact_is_returned(ada: Client) -> None:
    saved = await ada.ok("save_user_fact", text=" Likes tea. ", category="Preferences", tags=["Drink"])
    assert saved["created"]
    assert (saved["fact"]["text"], saved["fact"]["category"], saved["fact"]["tags"]) == (
        "Likes tea.",
        "preferences",
        ["drink"],
    )
    assert await ada.ok("get_user_facts") == {"facts": [saved["fact"]], "total": 1, "next_cursor": None}


async def test_the_same_text_is_the_same_fact(ada: Client) -> None:
    first = await ada.ok("save_user_fact", text="Likes tea.", category="drinks")
    again = await ada.ok("save_user_fact", text="Likes tea.", tags=["hot"])
    assert not again["created"]
    assert (again["fact"]["id"], again["fact"]["category"], again["fact"]["tags"]) == (
        first["fact"]["id"],
        "drinks",
        ["hot"],
    )
    assert await Fact.objects.acount() == 1


async def test_a_fact_with_an_existing_id_replaces_it(ada: Client) -> None:
    assert (await ada.ok("save_user_fact", text="Lives in Oslo.", id="home"))["created"]
    assert not (await ada.ok("save_user_fact", text="Lives in Bergen.", id="home"))["created"]
    assert await texts(ada, "get_user_facts") == ["Lives in Bergen."]
    assert await texts(ada, query="oslo") == []


async def test_facts_are_narrowed_and_paged(ada: Client) -> None:
    for number in range(5):
        await ada.ok("save_user_fact", text=f"Fact {number}", category="odd" if number % 2 else "even", tags=["t"])
    assert await texts(ada, "get_user_facts", category="ODD") == ["Fact 3", "Fact 1"]
    assert await texts(ada, "get_user_facts", tag="none") == []
    for tool, arguments in (("get_user_facts", {}), ("search_user_facts", {"query": "fact"})):
        first = await ada.ok(tool, limit=3, tag="T", **arguments)
        rest = await ada.ok(tool, limit=3, tag="T", cursor=first["next_cursor"], **arguments)
        found = [fact["text"] for page in (first, rest) for fact in page["facts"]]
        assert (found, first["total"], rest["next_cursor"]) == ([f"Fact {n}" for n in (4, 3, 2, 1, 0)], 5, None)


async def test_a_fact_is_deleted(ada: Client) -> None:
    saved = await ada.ok("save_user_fact", text="Likes tea.")
    gone = [await ada.ok("delete_user_fact", id=id) for id in (saved["fact"]["id"], saved["fact"]["id"], "a/../b")]
    assert gone == [{"deleted": True}, {"deleted": False}, {"deleted": False}]
    assert await texts(ada, query="tea") == []


async def test_the_search_finds_any_of_the_words_with_the_best_match_first(ada: Client) -> None:
    for text in (
        "Allergic to peanuts.",
        "Peanuts and allergic friends, at length.",
        "Has a peanut farm.",
        "Likes tea.",
    ):
        await ada.ok("save_user_fact", text=text)
    found = await texts(ada, query="allergic peanuts")
    assert set(found[:2]) == {"Allergic to peanuts.", "Peanuts and allergic friends, at length."}
    assert len(found) == 2
    assert len(await texts(ada, query="peanut")) == 3


def test_words_are_found_in_any_script_and_case(ada: Client, subtests: pytest.Subtests) -> None:
    async def check(text: str, query: str) -> None:
        await ada.ok("save_user_fact", text=text)
        await ada.ok("save_user_fact", text="Something else entirely")
        assert await texts(ada, query=query) == [text]

    cases = (
        ("Wohnt in Zürich", "zurich"),
        ("Wohnt in ZÜRICH", "zürich"),
        ("Straße der Freiheit", "STRASSE"),
        ("Живёт в Москве", "москва москв"),
        ("住在东京", "东京"),
        ("ガイドをください", "かいガイ"),
        ("Pays 50% more", "50%"),
        ("Uses snake_case", "snake_c"),
        ("Καλημέρα ΚΌΣΜΕ", "κοσμε"),
    )
    for text, query in cases:
        with subtests.test(text=text, query=query), rolled_back():
            async_to_sync(check)(text, query)


def test_queries_are_split_into_words_without_operators(ada: Client, subtests: pytest.Subtests) -> None:
    async def check(query: str) -> None:
        await ada.ok("save_user_fact", text="Nothing of the kind")
        assert await texts(ada, query=query) == []

    cases = (
        "'",
        "''",
        "\\",
        "a' | 'b",
        "!a",
        "a & !b",
        ":*",
        "%",
        "_",
        "<->",
        "\0",
        "' OR 1=1 --",
        "(",
        "a:b",
        "*",
        "x" * 200,
    )
    for query in cases:
        with subtests.test(query=query), rolled_back():
            async_to_sync(check)(query)


def test_queries_and_words_have_a_maximum_length() -> None:
    assert len(parse_query(" ".join(map(str, range(100))))) == 16
    assert parse_query("a A á") == ["a"]
    assert build_index_text("y" * 5000) == f" {'y' * 64}"


async def test_the_category_and_the_tags_are_searched_too(ada: Client) -> None:
    await ada.ok("save_user_fact", text="Green, without sugar.", category="tea", tags=["Hot drink"])
    for query in ("tea", "drink"):
        assert await texts(ada, query=query) == ["Green, without sugar."]
    assert await texts(ada, query="tea", category="coffee") == []


def test_invalid_values_and_filters_are_refused_with_the_reason(ada: Client, subtests: pytest.Subtests) -> None:
    async def check(arguments: dict[str, Any], complaint: str) -> None:
        assert complaint in await ada.error("save_user_fact", **arguments)
        assert not await Fact.objects.aexists()

    cases = (
        ({"text": ""}, "text"),
        ({"text": " \n"}, "The text is empty."),
        ({"text": "x" * 4001}, "text"),
        ({"text": "a\0"}, "U+0000 cannot be stored; remove it."),
        ({"text": "a", "category": "\0"}, "U+0000 cannot be stored; remove it."),
        ({"text": "a", "id": ".hidden"}, "id"),
        ({"text": "a", "user_id": "2"}, "user_id"),
    )
    for arguments, complaint in cases:
        with subtests.test(arguments=arguments, complaint=complaint), rolled_back():
            async_to_sync(check)(arguments, complaint)

    async def check(tool: str) -> None:
        query = {"query": "x"} if tool.startswith("search") else {}
        for name in ("category", "tag"):
            assert await ada.error(tool, **query, **{name: "\0"}) == "U+0000 cannot be stored; remove it."

    for tool in ("get_user_facts", "search_user_facts"):
        with subtests.test(tool=tool), rolled_back():
            async_to_sync(check)(tool)


async def test_hidden_characters_are_not_stored(ada: Client) -> None:
    fact = (
        await ada.ok("save_user_fact", text="Likes\u202e tea\u200b.\nVery.", category="Pre\u2066fs", tags=["a\u200bb"])
    )["fact"]
    assert (fact["text"], fact["category"], fact["tags"]) == ("Likes tea.\nVery.", "prefs", ["ab"])
    assert "is empty" in str(await ada.call("save_user_fact", text="\u200b\u202e"))
