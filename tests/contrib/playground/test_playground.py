"""The playground: forms of tools, exact messages, results, acting as others, confirmation, and copies."""

import base64
import html
import json
import re
import shlex
from collections.abc import Callable, Iterator
from datetime import date
from typing import Annotated, Any, Literal

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, Permission, User
from django.test import Client
from django.urls import reverse
from pydantic import BaseModel, Field

from mcp_django import Context, Server, ToolError, wiring
from mcp_django.auth.authorization.user_rights import has_no_more_rights
from mcp_django.contrib.playground.content_blocks import list_blocks
from mcp_django.observability import Call
from mcp_django.runtime.calls.observer import add_outcome_recorder, remove_outcome_recorder
from mcp_django.server.primitives.registry import get_registry
from mcp_django.types import ImageContent

pytestmark = pytest.mark.django_db
ALIAS = "played"
READS = {"readOnlyHint": True}
PAGE = "admin:mcp_playground_playground_changelist"
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class Address(BaseModel):
    city: str
    number: int = 1


@pytest.fixture
def change(settings: Any) -> Callable[..., None]:
    def change(**options: Any) -> None:
        settings.MCP = {
            "AUTH": "none",
            "SERVERS": {"default": {}, ALIAS: {"STORED": False, "PATH": "played/mcp"}},
            "RECORD": {"ROLLUPS": False, "CALLS": "none", "RUNNING": False},
            "PLAYGROUND": options,
        }

    change(ENABLED=True)
    return change


@pytest.fixture
def server(change: Callable[..., None]) -> Iterator[Server]:
    server, registry = wiring.get_server(ALIAS), get_registry(ALIAS)

    @server.tool(annotations=READS)
    async def repeat(
        text: str,
        count: int = 1,
        size: Literal["small", "large"] | None = None,
        is_loud: bool = False,
        tags: list[str] | None = None,
        numbers: list[int] = [],  # noqa: B006  # never changed
        day: date | None = None,
        address: Address | None = None,
        extra: dict[str, int] | None = None,
        share: Annotated[float, Field(ge=0)] = 0.5,
    ) -> dict[str, Any]:
        """Repeat the arguments."""
        return {"text": text * count, "tags": tags, "day": str(day), "city": address and address.city}

    @server.tool(annotations=READS)
    async def whoami(ctx: Context) -> str:
        return str(ctx.principal.user.get_username())

    @server.tool(annotations=READS)
    async def draw() -> ImageContent:
        return ImageContent(PIXEL, "image/png")

    @server.tool(annotations=READS)
    async def fail(why: str = "") -> str:
        raise ToolError(f"No <b>{why}</b>")

    @server.tool
    async def write(name: str) -> str:
        """Write."""
        return f"wrote {name}"

    @server.tool(annotations=READS, permission="auth.add_user")
    async def secret() -> str:
        return "swordfish"

    @server.prompt
    async def welcome(name: str, place: str = "here") -> str:
        return f"Welcome {name} {place}"

    @server.resource("notes://one", mime_type="text/plain")
    async def read_one() -> str:
        return "the first note"

    @server.resource("notes://by/{name}{?of,on}")
    async def read_note(name: str, of: str = "", on: str = "") -> str:
        return f"note {name}"

    @server.completion("welcome", "name")
    async def complete_name(value: str, arguments: dict[str, str]) -> list[str]:
        return [
            f"{name} {arguments.get('place', '')}".strip()
            for name in ("Ada", "Alan", "Grace")
            if name.startswith(value)
        ]

    @server.completion("notes://by/{name}{?of,on}", "name")
    async def complete_note(value: str) -> list[str]:
        return ["a<b>"]

    yield server
    for tool in list(registry.tools):
        registry.remove("tool", tool.name)
    for prompt in list(registry.prompts):
        registry.remove("prompt", prompt.name)
    for resource in list(registry.resources):
        registry.remove("resource", resource.key)
    for template in list(registry.templates):
        registry.remove("template", template.key)
    registry.completers.clear()


@pytest.fixture
def received() -> Iterator[list[Call]]:
    """Calls that the server received, without those for lists."""
    received: list[Call] = []

    def record(call: Call, outcome: Any, error: Any) -> None:
        if not call.method.endswith(("list", "discover")):
            received.append(call)

    add_outcome_recorder(record)
    yield received
    remove_outcome_recorder(record)


def log_in(*permissions: str, name: str = "staff") -> Client:
    user = User.objects.create_user(name, is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    browser = Client()
    browser.force_login(user)
    return browser


@pytest.fixture
def browser(server: Server) -> Client:
    return log_in("use_playground")


def build_url(name: str = "", kind: str = "tools", **query: str) -> str:
    return reverse(PAGE, query={"server": ALIAS, "kind": kind, **({"name": name} if name else {}), **query})


def post(browser: Client, name: str, kind: str = "tools", user: str = "", /, **fields: str) -> str:
    data = {"act": "send", **{f"argument-{key}" if key[0] != "_" else key[1:]: text for key, text in fields.items()}}
    answer = browser.post(build_url(name, kind, **({"as": user} if user else {})), data)
    assert answer.status_code == 200
    return answer.content.decode()


def read_text(page: str, id: str) -> str:
    found = re.search(rf'<pre id="{id}"[^>]*>(.*?)</pre>', page, re.DOTALL)
    assert found is not None, page
    return html.unescape(found[1])


@pytest.mark.parametrize(
    ("kind", "name", "fields", "params"),
    [
        ("tools", "repeat", {"text": "a"}, {"name": "repeat", "arguments": {"text": "a"}}),
        ("tools", "repeat", {"text": ""}, {"name": "repeat", "arguments": {"text": ""}}),
        (
            "tools",
            "repeat",
            {
                "text": " a ",
                "count": "3",
                "size": '"large"',
                "is_loud": "true",
                "tags": "x\r\ny z",
                "numbers": "1\r\n2",
                "day": "2026-05-03",
                "address/city": "Oslo",
                "share": "0.25",
            },
            {
                "name": "repeat",
                "arguments": {
                    "text": " a ",
                    "count": 3,
                    "size": "large",
                    "is_loud": True,
                    "tags": ["x", "y z"],
                    "numbers": [1, 2],
                    "day": "2026-05-03",
                    "address": {"city": "Oslo"},
                    "share": 0.25,
                },
            },
        ),
        (
            "tools",
            "repeat",
            {"text": "a", "_null-tags": "on", "tags": "x"},
            {"name": "repeat", "arguments": {"text": "a", "tags": None}},
        ),
        ("tools", "whoami", {}, {"name": "whoami", "arguments": {}}),
        ("tools", "draw", {}, {"name": "draw", "arguments": {}}),
        ("tools", "fail", {"why": "x"}, {"name": "fail", "arguments": {"why": "x"}}),
        ("tools", "write", {"name": "x", "_confirmed": "on"}, {"name": "write", "arguments": {"name": "x"}}),
        ("prompts", "welcome", {"name": "Ada"}, {"name": "welcome", "arguments": {"name": "Ada"}}),
        ("resources", "notes://one", {"uri": "notes://one"}, {"uri": "notes://one"}),
        ("resources", "notes://by/{name}{?of,on}", {"name": "a b", "on": "1"}, {"uri": "notes://by/a%20b?on=1"}),
        ("resources", "notes://by/ada", {"uri": "notes://by/ada"}, {"uri": "notes://by/ada"}),
    ],
)
def test_each_form_sends_exactly_the_message_that_the_page_shows(
    browser: Client, received: list[Call], kind: str, name: str, fields: dict[str, str], params: dict[str, Any]
) -> None:
    shown = json.loads(read_text(post(browser, name, kind, **{**fields, "_act": "show"}), "message"))
    assert received == []
    page = post(browser, name, kind, **fields)
    assert json.loads(read_text(page, "message")) == shown
    (call,) = received
    assert {"jsonrpc": "2.0", "id": call.id, "method": call.method, "params": call.params} == shown
    assert {key: value for key, value in call.params.items() if key != "_meta"} == params
    assert set(json.loads(read_text(page, "answer"))) == {"result"}


def test_results_are_rendered_and_escaped(browser: Client) -> None:
    page = post(browser, "draw")
    assert f'data-base64="{base64.b64encode(PIXEL).decode()}"' in page
    assert f"image/png, {len(PIXEL)}\N{NO-BREAK SPACE}bytes" in page
    assert '"data:' not in page
    page = post(browser, "fail", why="x")
    assert "The tool failed" in page
    assert "No &lt;b&gt;x&lt;/b&gt;" in page
    assert "<b>x</b>" not in page
    assert "Welcome Ada here" in post(browser, "welcome", "prompts", name="Ada")
    assert "the first note" in post(browser, "notes://one", "resources", uri="notes://one")
    assert "&quot;city&quot;: &quot;Oslo&quot;" in post(browser, "repeat", **{"text": "a", "address/city": "Oslo"})


def test_a_wrong_value_is_answered_by_the_server(browser: Client, received: list[Call]) -> None:
    page = post(browser, "repeat", text="a", count="many")
    assert received[-1].params["arguments"]["count"] == "many"
    assert "The tool failed" in page
    assert "not valid JSON" in post(browser, "repeat", text="a", extra="{city")
    assert len(received) == 1


def test_an_error_of_the_server_is_shown_at_the_field(browser: Client) -> None:
    page = post(browser, "repeat", **{"text": "a", "count": "many", "address/number": "x", "share": "-1"})
    found = dict(re.findall(r'<ul class="errorlist" id="id_argument-(.*?)_error"><li>(.*?)</li>', page))
    assert set(found) == {"count", "address/number", "share"}
    assert "give an integer" in found["count"]
    page = post(browser, "repeat", _act="send_json", _arguments='{"text": "a", "address": {}}')
    assert 'id="id_argument-count_error"' not in page
    page = post(
        browser, "repeat", _act="send_json", _arguments='{"text": "a", "address": {"city": "b", "number": "x"}}'
    )
    assert 'id="id_argument-address/number_error"' in page


def test_json_is_sent_as_it_is(browser: Client, received: list[Call]) -> None:
    post(browser, "repeat", _act="send_json", _arguments='{"txt": [1]}')
    assert received[-1].params["arguments"] == {"txt": [1]}
    for text, error in (("{", "This is not valid JSON: see line 1, column 2"), ("[]", "must be a JSON object")):
        assert error in post(browser, "repeat", _act="send_json", _arguments=text)
    assert len(received) == 1


def test_a_tool_that_may_write_needs_a_confirmation(browser: Client, received: list[Call]) -> None:
    assert "Tick the box to run it" in post(browser, "write", name="x")
    assert "Tick the box to run it" in post(browser, "write", _act="send_json", _arguments='{"name": "x"}')
    assert received == []
    assert not LogEntry.objects.exists()
    assert "wrote x" in post(browser, "write", name="x", _confirmed="on")


def test_each_sent_message_is_in_the_log_of_the_admin(browser: Client) -> None:
    post(browser, "repeat", text="swordfish")
    (entry,) = LogEntry.objects.all()
    assert entry.user.username == "staff"
    assert entry.object_repr == f"tools/call repeat ({ALIAS})"
    assert "as staff" in entry.get_change_message()
    assert "swordfish" not in entry.object_repr + entry.change_message


def test_the_lists_are_those_of_the_acting_user(server: Server, received: list[Call]) -> None:
    browser = log_in("use_playground", "use_playground_as", "add_user")
    User.objects.create_user("ada")
    assert "name=secret" in browser.get(build_url()).content.decode()
    assert "name=secret" not in browser.get(build_url(**{"as": "ada"})).content.decode()
    assert "ada" in read_text(post(browser, "whoami", "tools", "ada"), "answer")
    user, operator = received[-1].principal.user, received[-1].principal.actor
    assert (user.get_username(), operator.get_username()) == ("ada", "staff")
    assert "staff" in read_text(post(browser, "whoami"), "answer")
    # A tool that the user does not see has no form, so nothing is sent.
    before = len(received)
    assert 'id="answer"' not in post(browser, "secret", "tools", "ada")
    assert len(received) == before


def test_acting_as_others_needs_its_permission_and_never_exceeds_one_s_own_rights(server: Server) -> None:
    plain = log_in("use_playground")
    browser = log_in("use_playground", "use_playground_as", name="helper")
    User.objects.create_user("ada")
    User.objects.create_superuser("root")
    User.objects.create_user("gone", is_active=False)
    strong = User.objects.create_user("strong")
    strong.user_permissions.add(Permission.objects.get(codename="delete_user"))
    planner = User.objects.create_user("planner")
    planner.groups.add(Group.objects.create(name="Planners"))

    assert browser.get(build_url(**{"as": "ada"})).status_code == 200
    for name in ("root", "strong", "planner", "gone", "unknown"):
        assert browser.get(build_url(**{"as": name})).status_code == 403
        assert browser.post(build_url("whoami", **{"as": name}), {"act": "send"}).status_code == 403
    assert plain.get(build_url(**{"as": "ada"})).status_code == 403
    assert plain.post(build_url("whoami", **{"as": "ada"}), {"act": "send"}).status_code == 403
    assert plain.get(build_url(**{"as": "staff"})).status_code == 200
    assert has_no_more_rights(strong, User.objects.get(username="root"))


def test_the_playground_is_off_without_debug_and_closed_without_its_permission(
    server: Server, change: Callable[..., None], settings: Any
) -> None:
    browser = log_in("use_playground")
    index = reverse("admin:app_list", args=["mcp_playground"])
    assert browser.get(build_url()).status_code == 200
    assert reverse(PAGE) in browser.get(index).content.decode()
    change(ENABLED=False)
    assert browser.get(build_url()).status_code == 404
    change()
    settings.DEBUG = False
    assert browser.get(build_url()).status_code == 404
    assert browser.post(build_url("whoami"), {"act": "send"}).status_code == 404
    settings.DEBUG = True
    assert browser.get(build_url()).status_code == 200
    assert log_in("view_controlroom", name="other").get(build_url()).status_code == 403
    assert Client().get(build_url()).status_code == 302


def test_the_call_can_be_copied_without_a_secret(browser: Client) -> None:
    page = post(browser, "repeat", text="it's \N{SNOWMAN}", _act="show")
    message = json.loads(read_text(page, "message"))
    curl = read_text(page, "copy-curl")
    words = shlex.split(curl.replace("\\\n", ""))
    assert words[:2] == ["curl", "http://testserver/played/mcp"]
    assert json.loads(words[-1]) == message
    assert "Mcp-Name: repeat" in words
    assert "Bearer $TOKEN" in curl
    command = shlex.split(read_text(page, "copy-command"))
    assert command[:3] == ["manage.py", "mcp_call", "repeat"]
    assert json.loads(command[3]) == message["params"]["arguments"]
    for name in ("python", "test"):
        source = read_text(page, f"copy-{name}")
        compile(source, name, "exec")
        assert "call_tool('repeat', {'text'" in source


def test_parts_of_results_have_the_way_to_their_bytes_and_resources() -> None:
    data = base64.b64encode(b"<svg/>").decode()
    blocks = list_blocks(
        {
            "content": [
                {"type": "image", "data": data, "mimeType": "image/svg+xml"},
                {"type": "audio", "data": data, "mimeType": "audio/wav"},
                {"type": "image", "data": "?", "mimeType": "image/png"},
                {"type": "resource_link", "uri": "notes://one", "name": "one"},
                {"type": "resource", "resource": {"uri": "notes://pdf", "blob": data, "mimeType": "application/pdf"}},
                {"type": "resource", "resource": {"uri": "notes://text", "text": "t"}},
                {"type": "future", "x": 1},
            ]
        }
    )
    assert [block.kind for block in blocks] == ["file", "audio", "text", "link", "file", "resource", "json"]
    assert [block.uri for block in blocks] == ["", "", "", "notes://one", "notes://pdf", "notes://text", ""]
    assert (blocks[4].file_name, blocks[4].size) == ("result.pdf", 6)
    malformed = {"content": [1, {"type": "resource", "resource": 2}], "messages": [3, {"content": []}], "contents": {}}
    assert [block.kind for block in list_blocks(malformed)] == ["json"] * 4
