"""`mcp_inspect`: served primitives, callers, and reasons."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from io import StringIO
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.core.management import CommandError, call_command
from django.test import override_settings

from mcp_django import Context, ModelToolset, action, prompt, register, resource, tool
from mcp_django.auth.authorization.rule_cache import RULE_CACHE
from mcp_django.contrib.rest import expose
from mcp_django.management.command_options import get_command_principal
from mcp_django.models import StoredPrompt, ToolPolicy
from mcp_django.protocol import jsonrpc
from mcp_django.providers import Provider
from mcp_django.server.primitives import registry
from mcp_django.server.primitives.base import Tool
from mcp_django.server.primitives.decorators import build_tool
from mcp_django.transports.inprocess.client import InProcessClient
from mcp_django.wiring import get_server
from tests.library import views
from tests.support.savepoints import rolled_back
from tests.testapp.models import Book

SCOPE: ContextVar[str] = ContextVar("scope")

pytestmark = pytest.mark.django_db


def is_owner(principal: Any) -> bool:
    """A permission that is a function."""
    return bool(principal.user.username == "ada")


@pytest.fixture(autouse=True)
def _served(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(registry, "REGISTRIES", {})
    described = {"default": {"NAME": "hotel", "VERSION": "3"}, "staff": {}}
    with override_settings(MCP={"SERVERS": described}):
        tool(lambda: "x", name="open")
        tool(lambda: "x", name="named", permission="testapp.view_book")
        tool(lambda: "x", name="scoped", scopes=["books:write", "books:read"])
        tool(lambda: "x", name="both", permission=["testapp.view_book", is_owner], scopes=["books:read"])
        resource("test://a")(lambda: "x")
        resource("test://a/{n}", permission="testapp.delete_book")(lambda n: n)
        prompt(lambda: "x", name="say")
        yield


@pytest.fixture(autouse=True)
def _users() -> None:
    for name in ("ada", "bob"):
        user = get_user_model()._default_manager.create_user(name)
        if name == "ada":
            user.user_permissions.set(Permission.objects.filter(codename="view_book"))


def inspect(*arguments: str) -> str:
    out = StringIO()
    call_command("mcp_inspect", *arguments, stdout=out, no_color=True)
    return out.getvalue()


def rows(*arguments: str) -> dict[str, dict[str, Any]]:
    """The default server's rows by kind and key."""
    found = json.loads(inspect("--json", *arguments))["default"]
    return {f"{row['kind']} {row['key']}": row for row in found}


def test_every_primitive_is_listed_with_its_requirements_and_source() -> None:
    found = rows()
    assert {name: row["takes"] for name, row in found.items()} == {
        "tool both": "permission testapp.view_book, is_owner and scopes books:read",
        "tool named": "permission testapp.view_book",
        "tool open": "open to every authenticated caller",
        "tool scoped": "scopes books:write books:read",
        "resource test://a": "open to every authenticated caller",
        "template test://a/{n}": "permission testapp.delete_book",
        "prompt say": "open to every authenticated caller",
    }
    assert all("test_mcp_inspect" in row["source"] for row in found.values())
    assert not any("verdict" in row for row in found.values())


def test_the_text_has_one_line_for_each_primitive_with_its_source() -> None:
    lines = inspect("--server", "default").splitlines()
    assert lines[0] == "default: hotel 3"
    named = next(number for number, line in enumerate(lines) if " named " in line)
    assert "tool" in lines[named]
    assert "permission testapp.view_book" in lines[named]
    assert "test_mcp_inspect" in lines[named + 1]
    assert "[" not in lines[named]


ALLOWED = "allowed"
HIDDEN = "hidden: lacks the permission testapp.view_book"


def test_verdicts_for_a_user_equal_those_of_a_call(subtests: pytest.Subtests) -> None:
    cases = (
        ("ada", None, {"named": ALLOWED, "scoped": ALLOWED, "both": ALLOWED}),
        ("bob", None, {"named": HIDDEN, "scoped": ALLOWED, "both": HIDDEN}),
        (
            "ada",
            ["books:write"],
            {
                "named": ALLOWED,
                "scoped": "needs the scopes books:read books:write",
                "both": "needs the scopes books:read",
            },
        ),
        ("ada", ["books:read"], {"both": ALLOWED}),
        ("bob", ["books:read"], {"both": HIDDEN, "open": ALLOWED}),
    )
    for user, scopes, verdicts in cases:
        with subtests.test(user=user, scopes=scopes, verdicts=verdicts), rolled_back():
            options = [part for scope in scopes or () for part in ("--scope", scope)]
            found = rows("--user", user, *options)
            assert {name: found[f"tool {name}"]["verdict"] for name in verdicts} == verdicts
            assert found["template test://a/{n}"]["verdict"] == "hidden: lacks the permission testapp.delete_book"


def test_all_servers_are_shown_with_verdicts_unless_one_is_named() -> None:
    text = inspect("--user", "bob")
    assert f"[{ALLOWED}]" in text
    assert f"[{HIDDEN}]" in text

    assert set(json.loads(inspect("--json"))) == {"default", "staff"}
    assert set(json.loads(inspect("--json", "--server", "staff"))) == {"staff"}


def test_an_empty_server_explains_how_to_add_primitives() -> None:
    assert "no primitives registered; write mcp_tools.py" in inspect("--server", "staff")
    assert json.loads(inspect("--json", "--server", "staff")) == {"staff": []}


def test_invalid_arguments_are_reported(subtests: pytest.Subtests) -> None:
    for arguments, message in (
        (["--user", "nobody"], "Unknown user 'nobody'"),
        (["--server", "nowhere"], "invalid choice"),
        (["--scope", "books:read"], "--user"),
    ):
        with (
            subtests.test(arguments=arguments, message=message),
            rolled_back(),
            pytest.raises(CommandError, match=message),
        ):
            inspect(*arguments)


def test_a_hook_that_hides_a_tool_is_named_and_asked() -> None:
    class Books(ModelToolset):
        fields = ["title"]

        @action(permissions=["lend"])
        def lend(self, queryset: Any) -> None:
            raise NotImplementedError

        def has_lend_permission(self, ctx: Context, obj: Any = None) -> bool:
            return bool(ctx.user.username == "ada")

        def has_view_permission(self, ctx: Context, obj: Any = None) -> bool:
            return bool(ctx.user.username == "ada")

    register(Book)(Books)
    ada, bob = rows("--user", "ada"), rows("--user", "bob")
    assert ada["tool book_lend"]["takes"] == "has_lend_permission"
    assert ada["tool book_lend"]["verdict"] == ada["tool book_list"]["verdict"] == ALLOWED
    assert bob["tool book_lend"]["verdict"] == "hidden: has_lend_permission refuses"
    assert bob["tool book_list"]["verdict"] == "hidden: has_view_permission refuses"
    assert bob["template testapp.book://{pk}"]["verdict"] == bob["tool book_list"]["verdict"]
    with pytest.raises(CommandError, match=r"Unknown tool: book_lend .*has_lend_permission refuses"):
        call_command("mcp_call", "book_lend", '{"pks": [1], "idempotency_key": "k"}', "--user", "bob")


@contextmanager
def in_scope(ctx: Context) -> Iterator[None]:
    """Set a variable that hooks need."""
    token = SCOPE.set(ctx.user.username)
    yield
    SCOPE.reset(token)


def test_hooks_are_asked_inside_the_context_managers_of_the_server() -> None:
    class Books(ModelToolset):
        tools = ["list"]
        fields = ["title"]

        def has_view_permission(self, ctx: Context, obj: Any = None) -> bool:
            return SCOPE.get() == "ada"

    with override_settings(MCP={"SERVERS": {"default": {"AROUND": [f"{__name__}.in_scope"]}}}):
        register(Book)(Books)
        assert rows("--user", "ada")["tool book_list"]["verdict"] == ALLOWED
        assert "has_view_permission refuses" in rows("--user", "bob")["tool book_list"]["verdict"]


@override_settings(ROOT_URLCONF="tests.library.urls")
def test_the_permission_classes_of_a_view_are_named_and_asked() -> None:
    expose(views.BookViewSet, actions=["list", "ban"])
    found = rows("--user", "bob")
    assert found["tool book_list"]["takes"] == "at each call the view's IsAuthenticated, OwnerOrReadOnly"
    assert found["tool book_list"]["verdict"] == ALLOWED
    assert found["tool book_ban"]["verdict"] == "listed, but each call is refused by the view's IsAdminUser"


class Provided(Provider):
    """Tools of no registry."""

    async def tools(self, ctx: Context) -> list[Any]:
        return [build_tool(lambda: "x", "provided", permission="testapp.view_book")]


def test_provided_mounted_and_stored_primitives_are_listed() -> None:
    StoredPrompt.objects.create(name="stored", enabled=True, permission="testapp.view_book")
    described = {
        "default": {
            "PROVIDERS": [f"{__name__}.Provided"],
            "MOUNTS": {"s": {"SERVER": "staff", "PERMISSION": "testapp.view_book"}},
        },
        "staff": {},
    }
    with override_settings(MCP={"SERVERS": described}):
        tool(lambda: "x", name="inner", server="staff")
        found = rows("--user", "bob")
        assert found["tool provided"]["takes"] == "permission testapp.view_book"
        for name in ("tool provided", "tool s__inner", "prompt stored"):
            assert found[name]["verdict"] == HIDDEN
        assert rows("--user", "ada")["tool s__inner"]["verdict"] == ALLOWED


def test_rules_of_the_admin_are_named() -> None:
    ToolPolicy.objects.create(tool="open", disabled=True)
    ToolPolicy.objects.create(tool="scoped", groups=["Keepers"])
    RULE_CACHE.invalidate()
    found = rows("--user", "ada")
    assert found["tool open"]["takes"] == "by tool policy disabled"
    assert found["tool open"]["verdict"] == "hidden: a tool policy disables it"
    assert found["tool scoped"]["verdict"] == "hidden: a tool policy requires the groups Keepers"


def test_sizes_are_those_of_the_list_that_the_caller_receives() -> None:
    caller = InProcessClient(get_server("default"), get_command_principal("bob", None))
    listed = async_to_sync(caller.request)("tools/list")["tools"]
    sizes = {entry["name"]: len(jsonrpc.dumps(entry)) for entry in listed}

    found = rows("--user", "bob", "--sizes")
    assert {name: found[f"tool {name}"]["bytes"] for name in sizes} == sizes
    total = sum(sizes.values()) + len(sizes) - 1
    text = f"list of tools: {len(sizes)} entries, {total} bytes, about {total // 4} tokens"
    assert text in inspect("--user", "bob", "--sizes")
    assert "bytes" not in rows()["tool open"]


def test_rules_of_hosts_that_tools_violate_are_listed() -> None:
    assert "refuses" not in inspect()

    @tool(name="measure.all", description="a" * 1025)
    def measure(größe: int) -> str:
        return str(größe)

    text = inspect()
    assert "refuses (Claude, ChatGPT, Codex, VS Code): 1 x tool-name" in text
    assert "the tool 'measure.all': the argument 'größe' has a name" in text
    assert "limits (models on OpenAI's API, Claude Code from 2048 characters): 1 x long-description" in text
    assert "https://platform.claude.com" in text
    assert [one["rule"] for one in rows()["tool measure.all"]["hosts"]] == [
        "tool-name",
        "argument-name",
        "long-description",
    ]
    assert "hosts" not in rows()["tool open"]


def test_a_large_list_of_model_tools_recommends_generic_tools() -> None:
    assert "ORM_STYLE" not in inspect()
    declared = registry.get_registry("default")
    for number in range(60):
        declared.add(partial(build_model_tool_of_tests, number), "here")
    text = inspect()
    assert re.search(r"6\d tools, [\d,]+ bytes, about [\d,]+ tokens", text)
    assert 'MCP["SERVERS"]["default"]["ORM_STYLE"] = "generic"' in text


def build_model_tool_of_tests(number: int) -> Tool:
    """A tool that a generic one could replace."""
    made = build_tool(lambda: "x", f"model{number}_list")
    made.metadata = {"verb": "list"}
    return made
