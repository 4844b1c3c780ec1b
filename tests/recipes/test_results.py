"""The recipes about results: images, PDF files, large files and pages of rows."""

import base64
import contextlib
import sys
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.core.files.base import ContentFile
from django.http import Http404
from django.test import RequestFactory
from PIL import Image

from mcp_django.protocol.errors import ResourceNotFound
from tests.recipes.pages import Recipe, block_with
from tests.shop.models import Order, Product
from tests.support.clock import Clock

pytestmark = pytest.mark.django_db


@pytest.fixture
def users() -> tuple[User, User]:
    """Two superusers: rows decide, not permissions."""
    ada, bob = (User.objects.create_superuser(name) for name in ("ada", "bob"))
    return ada, bob


def png() -> bytes:
    """Return a small picture."""
    file = BytesIO()
    Image.new("RGB", (2, 2)).save(file, "PNG")
    return file.getvalue()


async def test_images_of_pillow_and_of_files_become_image_blocks(
    monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Path
) -> None:
    settings.MEDIA_ROOT = tmp_path
    product = await Product.objects.acreate(name="Tea", stock=7)
    recipe = Recipe("return-an-image", "stock_chart", monkeypatch)
    client = recipe.client()
    [chart] = (await client.call_tool("stock_chart", {}))["content"]
    assert (chart["type"], chart["mimeType"]) == ("image", "image/png")
    pixels = Image.open(BytesIO(base64.b64decode(chart["data"]))).convert("RGB")
    assert pixels.getpixel((12, 140)) == (46, 139, 87)
    assert pixels.getpixel((12, 5)) == (255, 255, 255)
    recipe.module.tool(
        lambda: ["Stock by product", recipe.module.stock_chart()], name="chart_with_text", description="-"
    )
    both = (await client.call_tool("chart_with_text", {}))["content"]
    assert [block["type"] for block in both] == ["text", "image"]
    assert "has no picture" in str(await client.call_tool("product_picture", {"pk": product.pk}))
    product.manual.save("tea.png", ContentFile(png()), save=False)
    await product.asave()
    [picture] = (await client.call_tool("product_picture", {"pk": product.pk}))["content"]
    assert (picture["mimeType"], base64.b64decode(picture["data"])) == ("image/png", png())


async def test_an_invoice_is_embedded_and_read_by_its_owner_alone(
    monkeypatch: pytest.MonkeyPatch, users: tuple[User, User]
) -> None:
    ada, bob = users
    await Order.objects.acreate(owner=ada, reference="A-1")
    recipe = Recipe("return-a-pdf", "render_invoice", monkeypatch)
    embedded, link = (await recipe.client(ada).call_tool("get_invoice", {"reference": "A-1"}))["content"]
    assert embedded["resource"]["mimeType"] == "application/pdf"
    assert base64.b64decode(embedded["resource"]["blob"]).startswith(b"%PDF")
    [contents] = await recipe.client(ada).read_resource(link["uri"])
    assert contents == embedded["resource"]
    assert (await recipe.client(bob).call_tool("get_invoice", {"reference": "A-1"}))["isError"]
    with pytest.raises(ResourceNotFound):
        await recipe.client(bob).read_resource(link["uri"])


def test_a_download_link_works_for_its_user_for_five_minutes(
    monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Path, users: tuple[User, User], clock: Clock
) -> None:
    settings.MEDIA_ROOT = tmp_path
    settings.MCP = {**settings.MCP, "ORIGIN": "https://shop.example.com"}
    product = Product.objects.create(name="Tea")
    product.manual.save("tea.txt", ContentFile(b"Boil water."), save=False)
    product.save()
    recipe = Recipe("return-a-large-file", "download_manual", monkeypatch)
    monkeypatch.setattr(recipe.module, "reverse", lambda name, args: f"/{name}/{args[0]}")
    call_tool = async_to_sync(recipe.client(users[0]).call_tool)
    [link] = call_tool("download_manual", {"pk": product.pk})["content"]
    assert link["uri"].startswith("https://shop.example.com/download/")
    assert link["size"] == 11

    monkeypatch.setitem(sys.modules, "shop.mcp_tools", recipe.module)
    views = ModuleType("shop.views")
    exec(block_with("return-a-large-file", "def download("), views.__dict__)
    request = RequestFactory().get("/")
    token = link["uri"].rpartition("/")[2]
    request.user = users[0]
    with contextlib.closing(views.download(request, token)) as response:
        assert b"".join(response) == b"Boil water."
    request.user = users[1]
    for wrong in (token, token + "x"):
        with pytest.raises(Http404):
            views.download(request, wrong)
    request.user = users[0]
    clock.move(301)
    with pytest.raises(Http404):
        views.download(request, token)


async def test_pages_hold_the_callers_rows_and_cursors_belong_to_one_caller(
    monkeypatch: pytest.MonkeyPatch, users: tuple[User, User]
) -> None:
    ada, bob = users
    for number in range(45):
        await Order.objects.acreate(owner=ada if number < 44 else bob, reference=f"R{number:02}")
    recipe = Recipe("my-own-results", "PAGE_SIZE", monkeypatch)
    found: list[str] = []
    cursors: list[str] = []
    page: dict[str, Any] = {"next_cursor": None}
    while not found or page["next_cursor"]:
        arguments = {"cursor": page["next_cursor"]} if found else {}
        page = (await recipe.client(ada).call_tool("my_orders", arguments))["structuredContent"]
        found += page["references"]
        cursors += [page["next_cursor"]] if page["next_cursor"] else []
    assert found == [f"R{number:02}" for number in range(44)]
    assert len(cursors) == 2
    assert "Unknown cursor" in str(await recipe.client(bob).call_tool("my_orders", {"cursor": cursors[0]}))

    toolset = Recipe("my-own-results", "class MyOrders", monkeypatch).client(bob)
    rows = (await toolset.call_tool("order_list", {}))["structuredContent"]["items"]
    assert [row["reference"] for row in rows] == ["R44"]
