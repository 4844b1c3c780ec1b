"""Forms, lists, suggestions and media of the playground in a browser, under a strict policy."""

import re
import struct
from collections.abc import Iterator
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect
from pydantic import BaseModel
from pytest_django.fixtures import Settings

import mcp_django
from mcp_django.server.primitives.registry import get_registry
from mcp_django.types import AudioContent, ImageContent
from tests.browser.accessibility import OF_DJANGO, check
from tests.browser.test_control_room import boss, page, room, site_url, strict_server
from tests.contrib.playground.test_playground import PIXEL

__all__ = ["boss", "page", "room", "site_url", "strict_server"]
PLAYGROUND = "/admin/mcp_playground/playground/"
SILENCE = (
    b"RIFF"
    + struct.pack("<I4s4sIHHIIHH4sI", 836, b"WAVE", b"fmt ", 16, 1, 1, 8000, 8000, 1, 8, b"data", 800)
    + b"\x80" * 800
)
"""Sound without a tone, of 0.1 seconds."""


class Trip(BaseModel):
    city: str
    stops: list[str] = []


@pytest.fixture
def trip_tools() -> Iterator[None]:
    """Declarations with each kind of field, image and audio, on the default server."""
    registry = get_registry("default")

    @mcp_django.tool(annotations={"readOnlyHint": True})
    async def plan_trip(day: date, trip: Trip, start: datetime | None = None, seats: int = 2) -> str:
        return f"{day} {trip.city} {seats}"

    @mcp_django.tool(annotations={"readOnlyHint": True})
    async def show_media() -> Any:
        return [ImageContent(PIXEL, "image/png"), AudioContent(SILENCE, "audio/wav")]

    @mcp_django.prompt
    async def guide(city: str) -> str:
        return f"Guide {city}"

    @mcp_django.completion("guide", "city")
    async def complete_city(value: str) -> list[str]:
        return [city for city in ("Oslo", "Osaka") if city.startswith(value)]

    yield
    for name in ("plan_trip", "show_media"):
        registry.remove("tool", name)
    registry.remove("prompt", "guide")


@pytest.mark.usefixtures("trip_tools")
def test_forms_lists_and_media_of_the_playground_are_usable(room: Page, settings: Settings) -> None:
    settings.MCP = settings.MCP | {"PLAYGROUND": {"ENABLED": True}}
    room.goto(f"{PLAYGROUND}?q=trip")
    entries = room.locator(".playground-entries li:visible")
    expect(entries).to_have_text(["plan_trip"])
    room.locator("#playground-filter").fill("show_m")
    expect(entries).to_have_text(["show_media"])

    User.objects.create_user("ada")
    room.goto(f"{PLAYGROUND}?as=ada")
    expect(room.locator(".playground-entries s").first).to_be_visible()
    check(room, ignored=OF_DJANGO)

    # Typed values are sent, also invalid dates; the error is shown at the field.
    room.goto(f"{PLAYGROUND}?name=plan_trip")
    room.locator("#id_argument-day").fill("31.12.")
    room.locator("[id='id_argument-trip/city']").fill("Oslo")
    room.locator("#id_argument-seats").fill("3")
    check(room, ignored=OF_DJANGO)
    room.locator("button[value=send]").click()
    errors = room.locator(".playground-field:has(#id_argument-day) .errorlist")
    expect(errors).to_contain_text("31.12.")
    expect(room.locator("#answer")).to_contain_text("isError")
    room.locator(".playground-field input[type=date]").evaluate(
        "it => { it.value = '2026-12-31'; it.dispatchEvent(new Event('change')) }"
    )
    expect(room.locator("#id_argument-day")).to_have_value("2026-12-31")
    room.locator(".playground-field input[type=datetime-local]").evaluate(
        "it => { it.value = '2026-12-31T09:30'; it.dispatchEvent(new Event('change')) }"
    )
    expect(room.locator("#id_argument-start")).to_have_value(re.compile(r"^2026-12-31T09:30:00(Z|[+-]\d\d:\d\d)$"))
    room.locator("button[value=send]").click()
    expect(room.locator("#answer")).to_contain_text("2026-12-31 Oslo 3")
    expect(errors).to_have_count(0)
    check(room, ignored=OF_DJANGO)
    room.locator("#call-link").click()
    expect(room.locator("[id='id_argument-trip/city']")).to_have_value("Oslo")

    room.goto(f"{PLAYGROUND}?name=show_media")
    room.locator("button[value=send]").click()
    expect(room.locator("figure canvas")).to_have_attribute("aria-label", re.compile("."))
    expect(room.locator("figure[data-media=image] figcaption")).to_contain_text("1 \N{MULTIPLICATION SIGN} 1")
    assert room.locator("figure canvas").evaluate("it => it.getContext('2d').getImageData(0, 0, 1, 1).data[3]") > 0
    room.locator("figure[data-media=audio] button").last.click()
    expect(room.locator("figure[data-seconds='0.1']")).to_be_visible()
    with room.expect_download() as download:
        room.locator("figure[data-media=image] button").click()
    assert Path(download.value.path()).read_bytes() == PIXEL
    check(room, ignored=OF_DJANGO)

    room.goto(f"{PLAYGROUND}?kind=prompts&name=guide")
    room.locator("#id_argument-city").press_sequentially("Osa")
    expect(room.locator("datalist option")).to_have_count(1)
    assert room.locator("datalist option").evaluate("it => it.value") == "Osaka"
    check(room, ignored=OF_DJANGO)
