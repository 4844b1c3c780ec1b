"""The skill about models: each caller reads about the tools that this caller may use."""

from typing import Any

import pytest

from mcp_django import Context, ModelToolset
from mcp_django.contrib.skills import ModelSkill
from mcp_django.providers import Mount
from mcp_django.schema import DeclarationError
from mcp_django.testing import TestClient
from tests.contrib.skills.folders import serve
from tests.library.models import Author, Book
from tests.server.client import HANDSHAKE, make_principal

pytestmark = pytest.mark.django_db


class Books(ModelToolset):
    model = Book
    fields = ("title",)
    tools = ("describe", "list", "get", "count", "update")


class Authors(ModelToolset):
    model = Author
    fields = ("name",)
    tools = ("list",)

    def has_view_permission(self, ctx: Context) -> bool:
        if ctx.principal.has_perm("library.broken"):
            raise RuntimeError("secret")
        return bool(ctx.principal.has_perm("library.add_author"))


async def read(*permissions: str, toolsets: Any = (Books, Authors), **options: Any) -> str:
    server = serve(ModelSkill(), toolsets=[toolset() for toolset in toolsets])
    client = TestClient(server, principal=make_principal(*permissions), **options)
    found = await client.skill("models/working-with-models")
    assert found.is_dynamic
    return found.text


@pytest.mark.parametrize("revision", [None, HANDSHAKE])
async def test_the_skill_names_the_tools_of_the_caller(revision: str | None) -> None:
    text = await read("library.view_book", "library.change_book", revision=revision)
    assert "`book_list`" in text
    assert "`book_update`" in text
    assert "`if_match`" in text
    assert "author" not in text.lower()


async def test_tools_without_permission_are_not_named() -> None:
    text = await read("library.view_book")
    assert "`book_list`" in text
    assert "book_update" not in text
    assert "dry_run" not in text
    assert "No tool for records" in await read()


async def test_hooks_of_the_project_decide(caplog: pytest.LogCaptureFixture) -> None:
    assert "`author_list`" in await read("library.add_author")
    text = await read("library.add_author", "library.broken")
    assert "author_list" not in text
    assert "secret" not in text
    assert "Permission hook failed" in caplog.text


async def test_a_mounted_server_has_the_names_of_its_host() -> None:
    inner = serve(ModelSkill(), toolsets=[Books()])
    host = TestClient(serve(mounts=[Mount(inner, prefix="far")]))
    assert "`far__book_list`" in (await host.skill("models/working-with-models")).text


def test_an_invalid_path_is_refused() -> None:
    with pytest.raises(DeclarationError, match="invalid path"):
        ModelSkill(path="../x")
