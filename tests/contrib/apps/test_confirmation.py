"""Questions in apps: forms of clients that show apps and have no elicitation, in both eras."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

import jsonschema_rs
import pytest
from django import forms
from django.contrib.auth.models import User

from mcp_django import Context, MCPError, ModelToolset, Server, ToolError, action
from mcp_django.contrib.apps import Apps, app
from mcp_django.models import SpentState
from mcp_django.protocol.errors import MissingClientCapability
from mcp_django.providers import Mount
from mcp_django.runtime import sealing
from mcp_django.testing import TestClient, accept
from tests.shop.models import Category

pytestmark = pytest.mark.django_db
MIME_TYPE = "text/html;profile=mcp-app"
APPS: dict[str, Any] = {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": [MIME_TYPE]}}}
QUESTION = "mcp-django/question"
MakeServer = Callable[..., Server]


class Booking(forms.Form):
    name = forms.CharField(max_length=20)
    nights = forms.IntegerField(max_value=7, initial=2)

    def clean_name(self) -> str:
        if self.cleaned_data["name"] == "nobody":
            raise forms.ValidationError("Write a real name.")
        return str(self.cleaned_data["name"])


class Shop:
    """A server whose tools ask, and the effects of its tools."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.done: list[Any] = []
        self.steps: list[int] = []
        self.is_closed = False
        app("board", template="page.html", server=server)

        @server.tool(ui="confirmation", permission=lambda principal: not self.is_closed)
        async def remove(number: int, ctx: Context) -> str:
            """Remove an article."""
            await ctx.run_once("step", lambda: self.steps.append(number))
            answer = await ctx.elicit(f"Remove {number}?", None, key="sure")
            if not answer:
                raise ToolError(f"Kept: {answer.action}")
            self.done.append((number, ctx.user))
            return f"Removed {number}"

        @server.tool(ui="confirmation")
        def book(ctx: Context) -> str:
            """Book with a form, and confirm."""
            form = ctx.sync.elicit("Who?", Booking, key="who").data
            if ctx.sync.elicit(f"Really {form['name']}?", bool, key="really").data:
                self.done.append(form)
            return "finished"

        @server.tool(ui="confirmation")
        async def strictly(ctx: Context) -> str:
            """Ask in no app."""
            await ctx.elicit("Sure?", None, strict=True)
            self.done.append("strictly")
            return "done"

        @server.tool
        async def without_app(ctx: Context) -> str:
            """Ask without an app."""
            await ctx.elicit("Sure?", None)
            return "done"

        @server.tool(ui="board")
        async def in_own_app(ctx: Context) -> dict[str, str]:
            """Ask in an app of the tool's own, with an output schema."""
            return {"action": (await ctx.elicit("Sure?", None)).action}

        @server.tool(ui="confirmation")
        async def sample_first(ctx: Context) -> str:
            """Sample, then ask."""
            text = (await ctx.sample("Name a fruit", max_tokens=5)).text
            both = await ctx.gather(ctx.elicit(f"{text}?", bool, key="a"), ctx.elicit("More?", bool, key="b"))
            return f"{text} {[answer.data for answer in both]}"


@pytest.fixture
def shop(make_app_server: MakeServer) -> Shop:
    return Shop(make_app_server())


@pytest.fixture(params=["2026-07-28", "2025-11-25"])
def revision(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def make_client(shop: Shop, revision: str = "2026-07-28", **options: Any) -> TestClient:
    """Client with apps and without elicitation."""
    return TestClient(shop.server, revision=revision, **{"capabilities": APPS, **options})


def get_question(result: dict[str, Any]) -> dict[str, Any]:
    """Return the question of a result, which is in `_meta` alone."""
    question: dict[str, Any] = result["_meta"][QUESTION]
    rest = {name: value for name, value in result.items() if name != "_meta"}
    assert question["token"] not in repr(rest)
    assert question["message"] not in repr(rest)
    return question


async def send_answer(client: TestClient, question: dict[str, Any], **members: Any) -> dict[str, Any]:
    """Send the answer, as the app does."""
    return await client.call_tool(question["tool"], {"token": question["token"], **members})


def get_text(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


async def test_the_question_waits_in_the_app_and_its_answer_ends_the_call(shop: Shop, revision: str) -> None:
    async with make_client(shop, revision) as client:
        waiting = await client.call_tool("remove", {"number": 7})
        question = get_question(waiting)
        assert (waiting["isError"], shop.done) == (False, [])
        assert "Do not repeat the call" in get_text(waiting)
        assert (question["message"], question["schema"]) == ("Remove 7?", {"type": "object", "properties": {}})
        result = await send_answer(client, question)
    assert (get_text(result), shop.done, shop.steps) == ("Removed 7", [(7, None)], [7])
    assert QUESTION not in result.get("_meta", {})


async def test_revisions_with_an_older_form_of_elicitation_ask_too(shop: Shop) -> None:
    async with make_client(shop, "2025-06-18") as client:
        question = get_question(await client.call_tool("remove", {"number": 7}))
        assert get_text(await send_answer(client, question)) == "Removed 7"


async def test_results_fit_the_listed_output_schema(shop: Shop) -> None:
    async with make_client(shop) as client:
        [tool] = [tool for tool in await client.list_tools() if tool["name"] == "remove"]
        waiting = await client.call_tool("remove", {"number": 7})
        result = await send_answer(client, get_question(waiting))
    for each in (waiting, result):
        jsonschema_rs.validate(tool["outputSchema"], each["structuredContent"])
    assert waiting["structuredContent"] == {"waitingForUser": True}
    assert result["structuredContent"] == {"result": "Removed 7"}


async def test_a_client_with_elicitation_asks_its_user_itself(shop: Shop, revision: str) -> None:
    async with make_client(shop, revision, elicit=lambda params: accept()) as client:
        assert get_text(await client.call_tool("remove", {"number": 7})) == "Removed 7"


async def test_without_apps_elicitation_and_an_app_of_the_tool_the_call_is_refused(shop: Shop, revision: str) -> None:
    for capabilities, name in (({}, "remove"), (APPS, "without_app"), (APPS, "strictly")):
        async with make_client(shop, revision, capabilities=capabilities) as client:
            arguments = {"number": 7} if name == "remove" else {}
            if client.session is None:
                with pytest.raises(MissingClientCapability):
                    await client.call_tool(name, arguments)
            else:
                result = await client.call_tool(name, arguments)
                assert result["isError"]
                assert "does not support elicitation" in get_text(result)
    assert shop.done == []


async def test_a_strict_question_reaches_a_client_with_elicitation(shop: Shop, revision: str) -> None:
    async with make_client(shop, revision, elicit=lambda params: accept()) as client:
        assert get_text(await client.call_tool("strictly")) == "done"


async def test_the_user_may_decline(shop: Shop, revision: str) -> None:
    async with make_client(shop, revision) as client:
        question = get_question(await client.call_tool("remove", {"number": 7}))
        result = await send_answer(client, question, action="decline")
    assert (result["isError"], get_text(result), shop.done) == (True, "Kept: decline", [])


async def test_invalid_values_return_the_form_with_the_errors_of_its_fields(shop: Shop, revision: str) -> None:
    async with make_client(shop, revision) as client:
        question = get_question(await client.call_tool("book"))
        assert question["schema"]["properties"]["nights"].get("default", 2) == 2
        again = get_question(await send_answer(client, question, values={"name": "nobody", "nights": 9}))
        assert again["message"] == "Who?"
        assert again["errors"]["name"] == ["Write a real name."]
        assert set(again["errors"]) == {"name", "nights"}
        assert "Write a real name." in again["problem"]
        next_question = get_question(await send_answer(client, again, values={"name": "Ada", "nights": 3}))
        assert next_question["message"] == "Really Ada?"
        assert shop.done == []
        result = await send_answer(client, next_question, values={"value": True})
    assert (get_text(result), shop.done) == ("finished", [{"name": "Ada", "nights": 3}])


async def test_a_used_token_does_nothing(shop: Shop, revision: str) -> None:
    async with make_client(shop, revision) as client:
        question = get_question(await client.call_tool("remove", {"number": 7}))
        await send_answer(client, question)
        result = await send_answer(client, question)
    assert result["isError"]
    assert "cannot be answered" in get_text(result)
    assert shop.done == [(7, None)]


async def test_of_two_answers_at_once_one_counts(shop: Shop, revision: str) -> None:
    async with make_client(shop, revision) as client, make_client(shop, "2026-07-28") as other:
        question = get_question(await client.call_tool("remove", {"number": 7}))
        results = await asyncio.gather(send_answer(client, question), send_answer(other, question))
    assert sorted(result["isError"] for result in results) == [False, True]
    assert len(shop.done) == 1


async def test_foreign_altered_and_invented_tokens_are_refused_alike(shop: Shop, revision: str) -> None:
    ada, bob = [await User.objects.acreate_user(name) for name in ("ada", "bob")]
    async with (
        make_client(shop, revision, user=ada) as client,
        make_client(shop, revision, user=bob) as foreign,
        make_client(shop, revision, user=ada, kwargs={"tenant": "b"}) as elsewhere,
        make_client(shop, revision, principal=_with_client(client, "other")) as other_program,
    ):
        question = get_question(await client.call_tool("remove", {"number": 7}))
        token = question["token"]
        middle = len(token) // 2
        altered = token[:middle] + ("A" if token[middle] != "A" else "B") + token[middle + 1 :]
        attempts = [(each, token) for each in (foreign, elsewhere, other_program)]
        attempts += [(client, each) for each in (altered, token[:-1], "", "true", "x" * 100_000)]
        texts = set()
        for sender, sent in attempts:
            result = await send_answer(sender, {**question, "token": sent})
            assert result["isError"]
            texts.add(get_text(result))
        assert (len(texts), shop.done) == (1, [])
        assert not await SpentState.objects.aexists()
        assert get_text(await send_answer(client, question)) == "Removed 7"


def _with_client(client: TestClient, client_id: str) -> Any:
    """Return the principal of the same user in another program."""
    principal = client.principal
    return type(principal)(
        issuer=principal.issuer,
        subject=principal.subject,
        client_id=client_id,
        user=principal.user,
        scopes=principal.scopes,
        kind=principal.kind,
    )


async def test_another_worker_continues_the_call_and_the_token_counts_once(
    templates: dict[str, str], revision: str
) -> None:
    ada = await User.objects.acreate_user("ada")
    here, there = (Shop(Server("Shop", alias="two-workers", extensions=[Apps()])) for _ in range(2))
    async with make_client(here, revision, user=ada) as client, make_client(there, revision, user=ada) as other:
        question = get_question(await client.call_tool("remove", {"number": 7}))
        assert get_text(await send_answer(other, question)) == "Removed 7"
        assert (await send_answer(client, question))["isError"]
        assert (await send_answer(other, question))["isError"]
    assert (here.done, there.done) == ([], [(7, ada)])
    # The results of the steps of the handler came with the token.
    assert (here.steps, there.steps) == ([7], [])


async def test_an_expired_token_is_refused(shop: Shop, revision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with make_client(shop, revision) as client:
        question = get_question(await client.call_tool("remove", {"number": 7}))
        later = sealing.time.time() + 10 * 86_400
        monkeypatch.setattr(sealing.time, "time", lambda: later)
        assert "has expired" in get_text(await send_answer(client, question))
    assert shop.done == []


async def test_the_arguments_of_the_call_cannot_be_changed(shop: Shop) -> None:
    async with make_client(shop) as client:
        question = get_question(await client.call_tool("remove", {"number": 7}))
        for extra in ({"arguments": {"number": 8}}, {"name": "book"}, {"number": 8}):
            assert (await send_answer(client, question, **extra))["isError"]
        assert shop.done == []
        await send_answer(client, question, values={"number": 8})
    assert shop.done == [(7, None)]


async def test_the_permission_is_decided_again(shop: Shop, revision: str) -> None:
    async with make_client(shop, revision, user=await User.objects.acreate_user("ada")) as client:
        question = get_question(await client.call_tool("remove", {"number": 7}))
        shop.is_closed = True
        with pytest.raises(MCPError, match="Unknown tool: remove"):
            await send_answer(client, question)
        assert shop.done == []
        shop.is_closed = False
        assert get_text(await send_answer(client, question)) == "Removed 7"
    assert [user.username for _, user in shop.done] == ["ada"]


async def test_the_tool_is_listed_to_clients_with_apps_for_apps_alone(shop: Shop, revision: str) -> None:
    shop.is_closed = True
    async with make_client(shop, revision) as client, make_client(shop, revision, capabilities={}) as plain:
        tools = {tool["name"]: tool for tool in await client.list_tools()}
        others = {tool["name"] for tool in await plain.list_tools()}
        with pytest.raises(MCPError, match="Unknown tool"):
            await plain.call_tool("answer_question", {"token": "x"})
    assert tools["answer_question"]["_meta"] == {"ui": {"visibility": ["app"]}}
    assert "answer_question" not in others
    assert others == set(tools) - {"answer_question"}


async def test_the_token_is_in_no_log(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with make_client(shop) as client:
        question = get_question(await client.call_tool("remove", {"number": 7}))
        for extra in ({"values": 1}, {}, {}):
            result = await send_answer(client, question, **extra)
            assert question["token"][:20] not in repr(result)
    assert question["token"][:20] not in caplog.text


async def test_an_app_of_the_tool_shows_its_question(shop: Shop, revision: str) -> None:
    async with make_client(shop, revision) as client:
        waiting = await client.call_tool("in_own_app")
        assert "structuredContent" not in waiting
        assert waiting["isError"]  # the output schema has no place for it
        result = await send_answer(client, get_question(waiting), action="cancel")
    assert result["structuredContent"] == {"action": "cancel"}


async def test_other_requests_go_to_the_client_and_run_once(shop: Shop, revision: str) -> None:
    sampled: list[Any] = []

    def sample(params: dict[str, Any]) -> str:
        sampled.append(params)
        return "Apple"

    async with make_client(shop, revision, sample=sample) as client:
        first = get_question(await client.call_tool("sample_first"))
        second = get_question(await send_answer(client, first, values={"value": True}))
        assert (first["message"], second["message"]) == ("Apple?", "More?")
        result = await send_answer(client, second, values={"value": False})
    assert get_text(result) == "Apple [True, False]"
    assert len(sampled) == 1


async def test_a_mounted_tool_asks_in_an_app_of_the_host(make_app_server: MakeServer, revision: str) -> None:
    inner = Shop(Server("Inner", alias="confirmation-inner"))
    host = make_app_server(mounts=[Mount(inner.server, prefix="inner")])
    async with TestClient(host, revision=revision, capabilities=APPS) as client:
        [tool] = [tool for tool in await client.list_tools() if tool["name"].endswith("remove")]
        assert tool["_meta"]["ui"]["resourceUri"].startswith("ui://")
        question = get_question(await client.call_tool(tool["name"], {"number": 7}))
        assert get_text(await send_answer(client, question)) == "Removed 7"
    assert inner.done == [(7, None)]


class Categories(ModelToolset):
    """Categories whose deletion is confirmed, and whose actions are confirmed in two ways."""

    model = Category
    fields = ["slug", "name"]
    tools = ["get", "update", "delete"]
    confirm = {"delete": True, "shout": "strict"}

    @action(confirm="strict")
    def rename(self, obj: Category) -> str:
        """Rename a category."""
        return obj.name

    @action
    def shout(self, obj: Category) -> str:
        """Shout a name."""
        return obj.name


async def test_a_confirmed_write_asks_in_the_built_in_app(make_app_server: MakeServer, revision: str) -> None:
    user = await User.objects.acreate_superuser("root")
    for slug in ("a", "b"):
        await Category.objects.acreate(slug=slug, name=slug)
    server = make_app_server(toolsets=[Categories()])
    async with TestClient(server, revision=revision, capabilities=APPS, user=user) as client:
        tools = {tool["name"]: tool for tool in await client.list_tools()}
        uri = tools["category_delete"]["_meta"]["ui"]["resourceUri"]
        [page] = await client.read_resource(uri)
        assert "mcpApp.askUser" in page["text"]
        assert "_meta" not in tools["category_update"]

        question = get_question(await client.call_tool("category_delete", {"pk": "a"}))
        assert await Category.objects.filter(pk="a").aexists()
        result = await send_answer(client, question)
        assert (result["isError"], await Category.objects.filter(pk="a").aexists()) == (False, False)

        question = get_question(await client.call_tool("category_delete", {"pk": "b"}))
        await Category.objects.filter(pk="b").aupdate(name="changed")
        assert get_question(await send_answer(client, question))["message"] == "Delete category b?"
        assert await Category.objects.filter(pk="b").aexists()

        for name in ("category_rename", "category_shout"):
            assert "_meta" not in tools[name]
            with pytest.raises(MissingClientCapability) if client.session is None else contextlib.nullcontext():
                assert (await client.call_tool(name, {"pk": "b"}))["isError"]
