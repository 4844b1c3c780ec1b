"""The demo's map without a browser: its page, and the places that it requests."""

from typing import Any

import pytest
from asgiref.sync import async_to_sync

from mcp_django.testing import TestClient

pytestmark = pytest.mark.django_db


def test_the_tools_for_airports_have_a_page_with_the_map() -> None:
    client = TestClient()
    tools = {tool["name"]: tool for tool in async_to_sync(client.list_tools)()}
    for name in ("search_airports", "nearest_airports"):
        uri = tools[name]["_meta"]["ui"]["resourceUri"]
        (page,) = async_to_sync(client.read_resource)(uri)
        assert '<svg id="map"' in page["text"], name


def test_the_map_requests_the_places_that_have_airports() -> None:
    box = {"south": -20, "north": -10, "west": 170, "east": -170}  # Fiji lies on both sides of the antimeridian
    result: Any = async_to_sync(TestClient().call_tool)("airport_cells", box)
    found = result["structuredContent"]
    assert found["degrees"] == 0.125
    assert {longitude > 0 for _, longitude in found["cells"]} == {True, False}
    assert all(-20 <= latitude <= -10 for latitude, _ in found["cells"])
