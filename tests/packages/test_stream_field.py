"""Streams of blocks of Wagtail: blocks as JSON, not as HTML."""

from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import Group
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tests.orm.round_trips import build_toolset, check_round_trip
from tests.orm.toolsets import data, peer
from tests.packages.pages import Story

pytestmark = pytest.mark.django_db
CARD = {"number": 3, "names": ["a", "b"]}


async def test_stream_is_shown_and_written_as_blocks() -> None:
    group = await Group.objects.acreate(name="Writers")
    blocks: list[dict[str, Any]] = [
        {"type": "heading", "value": "Hello", "id": "1"},
        {"type": "group", "value": group.pk, "id": "2"},
    ]
    assert await check_round_trip(Story, "body", blocks) == blocks
    assert await check_round_trip(Story, "body", []) == []


async def test_new_blocks_get_an_id() -> None:
    server = peer(build_toolset(Story, "title", "body"))
    made = await data(server, "row_create", values={"body": [{"type": "card", "value": CARD}]})
    [block] = made["item"]["body"]
    names = [item["value"] for item in block["value"]["names"]]
    assert (block["type"], block["value"]["number"], names) == ("card", 3, ["a", "b"])
    assert block["id"]

    shown = await data(server, "row_get", pk=made["pk"])
    saved = await data(server, "row_update", pk=made["pk"], values={"body": shown["body"]})
    assert saved["item"]["body"] == shown["body"]


def test_a_page_of_streams_takes_one_statement() -> None:
    group = Group.objects.create(name="Writers")
    server = peer(build_toolset(Story, "title", "body"))
    for _ in range(5):
        async_to_sync(data)(server, "row_create", values={"body": [{"type": "group", "value": group.pk}]})
    async_to_sync(data)(server, "row_list")

    with CaptureQueriesContext(connection) as captured:
        page = async_to_sync(data)(server, "row_list")
    assert len([query for query in captured if " FROM " in query["sql"]]) == 1
    assert [row["body"][0]["value"] for row in page["items"]] == [group.pk] * 5


async def test_blocks_that_the_field_does_not_have_are_refused(subtests: pytest.Subtests) -> None:
    server = peer(build_toolset(Story, "title", "body"))
    cases: tuple[tuple[Any, str], ...] = (
        ([{"type": "video", "value": "x"}], '"video" is not one of "heading", "group", "card"'),
        ([{"type": "heading"}], "missing key 'value'"),
        ([{"type": "card", "value": 5}], "A block has a value that does not fit its type"),
        ([{"type": "card", "value": {"number": "x", "names": []}}], "body: "),
        ([{"type": "group", "value": 4711}], "body: "),
    )
    for body, text in cases:
        with subtests.test(body=body):
            result = await server.call("row_create", values={"body": body})
            assert result["isError"]
            assert text in result["content"][0]["text"]
