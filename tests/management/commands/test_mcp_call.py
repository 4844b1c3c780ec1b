"""`mcp_call`: one tool from the shell, under the rules of any caller."""

import builtins
import enum
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import StringIO
from typing import Any, Literal

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.core.management import CommandError, call_command
from django.test import override_settings

from mcp_django import Context, ModelToolset, ToolError, ToolResult, register, tool
from mcp_django.server.primitives import registry
from tests.testapp import mcp_tools
from tests.testapp.models import Book

pytestmark = pytest.mark.django_db
Answer = Callable[..., list[str]]


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Booking:
    nights: int
    meals: Literal["none", "half"] = "none"
    cot: bool = False


@pytest.fixture(autouse=True)
def _served(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tools of this test, and those of the test project that are guarded."""
    monkeypatch.setattr(registry, "REGISTRIES", {})
    with override_settings(MCP={"SERVERS": {"default": {}, "staff": {}}}):
        declare()
        yield


def declare() -> None:
    tool(mcp_tools.add)
    tool(mcp_tools.count_books, permission="testapp.view_book")
    tool(mcp_tools.delete_book, permission="testapp.delete_book", scopes=["books:write"])

    @tool(server="staff")
    def where(ctx: Context) -> str:
        return f"{ctx.server.alias} as {ctx.user}"

    @tool
    async def fail(how: str) -> ToolResult:
        if how == "bug":
            raise RuntimeError("secret")
        if how == "raise":
            raise ToolError("no, never")
        return ToolResult("not today", is_error=True)

    @tool
    async def talk(ctx: Context) -> str:
        await ctx.info("half way")
        await ctx.debug("too quiet")
        await ctx.report_progress(1, 2, "one")
        await ctx.report_progress(2)
        await ctx.notify("notifications/own")
        return "done: ä"

    @tool
    async def ask(what: str, ctx: Context) -> str:
        schemas: dict[str, Any] = {
            "bool": bool,
            "str": str,
            "int": int,
            "colour": Colour,
            "list": list[Colour],
            "stay": Booking,
            "consent": None,
        }
        answer = await ctx.elicit(f"Your {what}?", schemas[what])
        return f"{answer.action} {answer.data!r}"

    @tool
    async def open_page(ctx: Context) -> str:
        return (await ctx.elicit_url("Pay here", "https://example.com/pay")).action

    @tool
    async def sample(ctx: Context) -> str:
        return (await ctx.sample("Say hello")).text


@pytest.fixture
def typing(monkeypatch: pytest.MonkeyPatch) -> Answer:
    """`asked = typing("a", "b")`: type the lines, and collect the prompts."""

    def script(*lines: str) -> list[str]:
        asked, waiting = [], iter(lines)

        def line(prompt: str = "") -> str:
            asked.append(prompt)
            try:
                return next(waiting)
            except StopIteration:
                raise EOFError from None

        monkeypatch.setattr(builtins, "input", line)
        return asked

    return script


def call(*arguments: str) -> tuple[Any, str]:
    """Return the result that the command prints, and its stderr."""
    out, err = StringIO(), StringIO()
    call_command("mcp_call", *arguments, stdout=out, stderr=err)
    return json.loads(out.getvalue()), err.getvalue()


def text(*arguments: str) -> str:
    (block,) = call(*arguments)[0]["content"]
    return str(block["text"])


def test_results_are_printed_as_json_and_progress_to_stderr() -> None:
    result, err = call("add", '{"a": 1, "b": 2}')
    assert result == {"content": [{"type": "text", "text": "3"}], "structuredContent": {"result": 3}, "isError": False}
    assert err == ""

    assert text("count_books") == "0"

    out = StringIO()
    call_command("mcp_call", "talk", stdout=out, stderr=StringIO())
    assert "done: ä" in out.getvalue()

    result, err = call("talk")
    assert result["content"][0]["text"] == "done: ä"
    assert err.splitlines() == ["info: half way", "… 1 of 2 one", "… 2"]


def test_invalid_arguments_are_reported(subtests: pytest.Subtests) -> None:
    cases = (
        (["add", "{"], "not valid JSON"),
        (["add", "[1, 2]"], "must be a JSON object"),
        (["add", "7"], "must be a JSON object"),
        (["nobody"], r"Unknown tool: nobody \(-32602\)$"),
        (["add", "{}", "--user", "nobody"], "Unknown user 'nobody'"),
        (["add", "{}", "--server", "nowhere"], "invalid choice: 'nowhere'"),
        (["add", "{}", "--scope", "a:b"], "--user"),
        ([], "tool"),
    )
    for arguments, message in cases:
        with subtests.test(arguments=arguments, message=message), pytest.raises(CommandError, match=message):
            call(*arguments)


def test_a_tool_that_fails_prints_its_result_and_exits_with_one(subtests: pytest.Subtests) -> None:
    for arguments, text in (
        (["add", '{"a": "one", "b": 2}'], "a"),
        (["add", '{"a": 1}'], "b"),
        (["fail", '{"how": "raise"}'], "no, never"),
        (["fail", '{"how": "result"}'], "not today"),
        (["fail", '{"how": "bug"}'], "Internal error (reference"),
    ):
        with subtests.test(arguments=arguments, text=text):
            out = StringIO()
            with pytest.raises(SystemExit) as left:
                call_command("mcp_call", *arguments, stdout=out)
            result = json.loads(out.getvalue())
            assert left.value.code == 1
            assert result["isError"] is True
            assert text in result["content"][0]["text"]
            assert "secret" not in out.getvalue()


def test_another_server_is_named_by_its_alias() -> None:
    assert text("where", "--server", "staff") == "staff as None"
    with pytest.raises(CommandError, match="Unknown tool: add"):
        call("add", "{}", "--server", "staff")


@pytest.fixture
def ada() -> Any:
    user = get_user_model()._default_manager.create_user("ada")
    user.user_permissions.set(Permission.objects.filter(codename__in=["view_book", "delete_book"]))
    get_user_model()._default_manager.create_user("bob")
    return user


@pytest.mark.usefixtures("ada")
def test_permissions_of_the_user_apply() -> None:
    assert text("count_books", "--user", "ada") == "0"
    assert text("where", "--user", "ada", "--server", "staff") == "staff as ada"
    with pytest.raises(CommandError, match=r"Unknown tool: count_books .* lacks the permission testapp"):
        call("count_books", "--user", "bob")


@pytest.mark.usefixtures("ada")
def test_the_caller_holds_every_scope_unless_some_are_named(typing: Answer) -> None:
    Book.objects.create(title="Dune")
    for scopes in ([], ["--scope", "books:write"], ["--scope", "other", "--scope", "books:write"]):
        typing("n")
        assert text("delete_book", '{"title": "Dune"}', "--user", "ada", *scopes)
    with pytest.raises(CommandError, match="scope"):
        call("delete_book", '{"title": "Dune"}', "--user", "ada", "--scope", "books:read")


def test_a_question_is_asked_on_the_terminal(typing: Answer, subtests: pytest.Subtests) -> None:
    cases = (
        ("bool", ["y"], "accept True"),
        ("bool", ["yes"], "accept True"),
        ("bool", ["N"], "accept False"),
        ("bool", ["true"], "accept True"),
        ("str", ["7"], "accept '7'"),
        ("str", [" spaces "], "accept 'spaces'"),
        ("int", ["7"], "accept 7"),
        ("colour", ["red"], "accept <Colour.RED: 'red'>"),
        ("list", ['["red"]'], "accept [<Colour.RED: 'red'>]"),
        ("stay", ["3", "half", "y"], "accept Booking(nights=3, meals='half', cot=True)"),
        ("stay", ["3", "", ""], "accept Booking(nights=3, meals='none', cot=False)"),
        ("stay", ["3", "!"], "decline None"),
        ("bool", ["!"], "decline None"),
        ("consent", ["y"], "accept None"),
        ("consent", ["n"], "decline None"),
        ("consent", [""], "decline None"),
        ("int", ["seven", "7"], "accept 7"),
    )
    for what, lines, text in cases:
        with subtests.test(what=what, lines=lines, text=text):
            asked = typing(*lines)
            result, err = call("ask", json.dumps({"what": what}))
            assert result["content"][0]["text"] == text
            assert f"Your {what}?" in err
            assert len(asked) == len(lines)


def test_a_form_is_asked_field_by_field(typing: Answer) -> None:
    asked = typing("3", "half", "y")
    call("ask", '{"what": "stay"}')
    assert [prompt.split(" ")[0].lower() for prompt in asked] == ["nights", "meals", "cot"]


def test_a_url_is_shown_with_a_question_to_open_it(typing: Answer, subtests: pytest.Subtests) -> None:
    for line, text in (("y", "accept"), ("", "decline"), ("no", "decline")):
        with subtests.test(line=line, text=text):
            typing(line)
            result, err = call("open_page")
            assert result["content"][0]["text"] == text
            assert "https://example.com/pay" in err


def test_a_question_without_a_terminal_is_an_error(typing: Answer) -> None:
    typing()
    with pytest.raises(CommandError, match="stdin ended"):
        call("ask", '{"what": "bool"}')


def test_requests_that_a_shell_cannot_answer_are_errors() -> None:
    with pytest.raises(CommandError, match=r"-32021"):
        call("sample")


def test_the_reason_why_a_tool_is_missing_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    @tool
    def unserializable(order: object) -> str:
        raise NotImplementedError

    @tool(name="broken")
    def with_a_strange_argument(order: Iterator[Book]) -> str:
        raise NotImplementedError

    with pytest.raises(CommandError, match=r"Unknown tool: broken .* could not be registered: .*strange_argument"):
        call("broken")
    with pytest.raises(CommandError, match=r"Unknown tool: ad .*did you mean 'add'\?"):
        call("ad")


def test_the_tools_of_a_refused_toolset_are_explained() -> None:
    class Books(ModelToolset):
        fields = ["titel"]

    register(Book)(Books)
    with pytest.raises(CommandError, match=r"Unknown tool: book_list .* could not be registered: .*'titel'"):
        call("book_list")
