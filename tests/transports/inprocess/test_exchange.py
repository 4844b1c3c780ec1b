"""Pages of lists, and rounds of requests, without a server."""

from typing import Any

import pytest

from mcp_django.protocol.errors import InternalError
from mcp_django.transports.inprocess.exchange import complete_rounds, iter_entries

PAGES = {None: ("a", "b"), "2": ("c",), "3": ("d",)}


async def request_page(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Answer with the page of a cursor, each of which has a next one."""
    cursor = params.get("cursor")
    if cursor not in PAGES:
        raise InternalError("This page fails")
    return {method: [{"name": name, **params} for name in PAGES[cursor]], "nextCursor": str(int(cursor or 1) + 1)}


async def test_entries_of_all_pages_are_read_with_the_params_of_the_list() -> None:
    entries, found = iter_entries(request_page, "tools", "tools", {"uri": "a:b"}), list[Any]()
    while len(found) < 4:
        found.append(await anext(entries))
    with pytest.raises(InternalError):
        await anext(entries)
    assert [entry["name"] for entry in found] == ["a", "b", "c", "d"]
    assert [entry.get("cursor") for entry in found] == [None, None, "2", "3"]
    assert {entry["uri"] for entry in found} == {"a:b"}


async def test_a_list_is_read_up_to_a_maximum_of_pages() -> None:
    found = [entry["name"] async for entry in iter_entries(request_page, "tools", "tools", max_pages=2)]
    assert found == ["a", "b", "c"]


async def test_each_round_has_the_answers_and_the_state_of_the_round_before() -> None:
    sent: list[dict[str, Any]] = []
    results = [
        {"resultType": "input_required", "inputRequests": {"q": {"method": "roots/list"}}, "requestState": "s1"},
        {"resultType": "input_required"},
        {"resultType": "complete"},
    ]

    async def send(params: dict[str, Any]) -> dict[str, Any]:
        sent.append(params)
        return results[len(sent) - 1]

    async def respond(request: dict[str, Any]) -> str:
        return f"answer to {request['method']}"

    assert await complete_rounds(send, {"name": "a"}, respond) == {"resultType": "complete"}
    assert sent == [
        {"name": "a"},
        {"name": "a", "inputResponses": {"q": "answer to roots/list"}, "requestState": "s1"},
        {"name": "a"},
    ]
