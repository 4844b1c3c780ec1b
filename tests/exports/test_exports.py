"""The extension of another package: it works, and it needs public names only."""

import ast
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client as Browser
from django.urls import reverse

from mcp_django import Context, Principal, ToolError, wiring
from mcp_django.extensions import Call, InvalidParams, MissingClientCapability
from mcp_django.extensions.calls import InProcessClient, InProcessProfile
from mcp_django.server.primitives.registry import get_registry
from tests.exports.extension import IDENTIFIER, Exports
from tests.exports.models import Export, ExportStatus
from tests.exports.worker import run_export
from tests.repository.test_architecture import ROOT
from tests.repository.test_extension_surface import PUBLIC_MODULES

ALIAS = "exports"
PROFILE = InProcessProfile(capabilities={"extensions": {IDENTIFIER: {}}})


@pytest.fixture
def runs(transactional_db: None, settings: Any) -> Iterator[list[Any]]:
    """The names of the callers for whom the tools of the server ran, with the language of the run."""
    settings.MCP = {
        "AUTH": "none",
        "SERVERS": {"default": {}, ALIAS: {"EXTENSIONS": ["tests.exports.extension.Exports"], "STORED": False}},
    }
    runs: list[Any] = []
    server = wiring.get_server(ALIAS)

    @server.tool(tags=["export"])
    async def build_report(ctx: Context, year: int) -> str:
        """Build a report."""
        await ctx.report_progress(0.5)
        runs.append(getattr(ctx.user, "username", None))
        return f"report of {year}"

    @server.tool(tags=["export"])
    async def fail(ctx: Context) -> str:
        """Fail."""
        raise ToolError("no paper")

    @server.tool(tags=["export"])
    async def ask(ctx: Context) -> str:
        """Ask the client, which is gone."""
        return str((await ctx.elicit("Sure?")).data)

    yield runs
    for name in ("build_report", "fail", "ask"):
        get_registry(ALIAS).remove("tool", name)


def make_client(user: User, profile: InProcessProfile = PROFILE) -> InProcessClient:
    return InProcessClient(
        wiring.get_server(ALIAS), Principal(issuer="tests", subject=user.username, user=user), profile
    )


@pytest.fixture
def ada(transactional_db: None) -> User:
    return User.objects.create_superuser("ada", password="secret")


async def start(client: InProcessClient, tool: str, **arguments: Any) -> str:
    """Call a tool, and return the id of its export."""
    created = await client.request("tools/call", {"name": tool, "arguments": arguments})
    assert created["resultType"] == "export", created
    return str(created["exportId"])


async def test_a_call_is_answered_by_an_export_whose_result_comes_later(runs: list[Any], ada: User) -> None:
    client = make_client(ada)
    id = await start(client, "build_report", year=2026)
    ended = await client.request("exports/result", {"exportId": id})
    assert (ended["status"], ended["progress"], runs) == ("ready", 0.5, ["ada"])
    assert ended["result"]["content"][0]["text"] == "report of 2026"
    assert await client.request("exports/get", {"exportId": id}) == ended


async def test_an_error_of_the_tool_is_its_result(runs: list[Any], ada: User) -> None:
    client = make_client(ada)
    ended = await client.request("exports/result", {"exportId": await start(client, "fail")})
    assert (ended["result"]["isError"], ended["result"]["content"][0]["text"]) == (True, "no paper")


async def test_a_client_that_is_gone_cannot_be_asked(runs: list[Any], ada: User) -> None:
    asked = InProcessProfile(capabilities={**PROFILE.capabilities, "elicitation": {"form": {}}})
    client = make_client(ada, asked)
    ended = await client.request("exports/result", {"exportId": await start(client, "ask")})
    assert "the client cannot be asked" in ended["result"]["content"][0]["text"]


async def test_a_client_without_the_extension_gets_the_plain_result(runs: list[Any], ada: User) -> None:
    client = make_client(ada, InProcessProfile())
    result = await client.request("tools/call", {"name": "build_report", "arguments": {"year": 2026}})
    assert (result["content"][0]["text"], await Export.objects.acount()) == ("report of 2026", 0)
    with pytest.raises(MissingClientCapability):
        await client.request("exports/list")


async def make_export(user: User) -> Export:
    """Save an export that waits for a worker."""
    client = make_client(user)
    export = await Export.objects.aget(pk=await start(client, "build_report", year=2026))
    await client.request("exports/result", {"exportId": export.pk})
    export.status = ExportStatus.WAITING
    await export.asave()
    return export


async def test_another_process_runs_the_call_for_the_user_as_it_is_then(runs: list[Any], ada: User) -> None:
    export = await make_export(ada)
    ada.is_active = False
    await ada.asave()
    await run_export(export.pk)
    await export.arefresh_from_db()
    assert (export.status, export.error) == ("failed", "The user of this call is not active any more")
    assert runs == ["ada"], "the first run, before"


async def test_the_stored_call_has_no_result_and_no_secret_of_its_caller(runs: list[Any], ada: User) -> None:
    export = await make_export(ada)
    assert ada.password not in export.call


async def test_only_the_caller_sees_and_cancels_its_exports(runs: list[Any], ada: User) -> None:
    bob = make_client(await User.objects.acreate_user("bob"))
    export = await make_export(ada)
    for method in ("exports/get", "exports/result", "exports/cancel"):
        with pytest.raises(InvalidParams, match="Unknown export"):
            await bob.request(method, {"exportId": export.pk})
    assert (await bob.request("exports/list"))["exports"] == []
    client = make_client(ada)
    await client.request("exports/cancel", {"exportId": export.pk})
    with pytest.raises(InvalidParams, match="ended already"):
        await client.request("exports/cancel", {"exportId": export.pk})
    await run_export(export.pk)
    assert (await client.request("exports/get", {"exportId": export.pk}))["status"] == "cancelled"


async def test_a_list_has_pages(runs: list[Any], ada: User) -> None:
    client = make_client(ada)
    ids = {await start(client, "build_report", year=year) for year in (2024, 2025, 2026)}
    assert {entry["exportId"] for entry in await client.list_all("exports/list", "exports")} == ids


async def test_a_subscription_follows_the_exports_of_its_caller(runs: list[Any], ada: User) -> None:
    export, bob = await make_export(ada), await User.objects.acreate_user("bob")

    async def read(call: Call) -> Any:
        return await Exports().read_export(Context(call), export.pk)

    waiting = {"exportId": export.pk, "status": "waiting"}
    assert await make_client(ada).run_in_call("subscriptions/listen", read) == waiting
    assert await make_client(bob).run_in_call("subscriptions/listen", read) is None


def test_an_operator_cancels_an_export_in_the_admin(ada: User, client: Browser) -> None:
    export = Export.objects.create(owner="x", user=ada, server=ALIAS, tool="build_report", call="{}")
    client.force_login(ada)
    page = reverse("admin:exports_export_cancel", args=[export.pk])
    assert "Cancel this export?" in client.get(page).text
    client.post(page)
    export.refresh_from_db()
    assert export.status == ExportStatus.CANCELLED
    assert "{}" not in client.get(reverse("admin:exports_export_change", args=[export.pk])).text


def test_the_extension_imports_public_names_only() -> None:
    for path in sorted((ROOT / "tests/exports").glob("*.py")):
        if path.name.startswith("test_"):
            continue
        modules = {
            node.module
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mcp_django")
        }
        assert modules <= PUBLIC_MODULES, path.name
