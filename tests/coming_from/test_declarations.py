"""Examples of declarations: tools, resources, prompts, completions and toolsets."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from pydantic import Field

from mcp_django import Context, ToolError, ToolResult, Toolset, prompt, resource, tool
from mcp_django.lowlevel import Handlers
from mcp_django.protocol.types import Role
from mcp_django.providers import DirectoryProvider, FileResource
from mcp_django.testing import TestClient
from mcp_django.types import (
    Annotations,
    BlobResourceContents,
    Completion,
    Icon,
    ResourceResult,
    TextContent,
    TextResourceContents,
)
from tests.server.client import make_server


async def call_text(client: TestClient, name: str, **arguments: Any) -> str:
    """Call a tool, and return the text of its result."""
    return str((await client.call_tool(name, arguments))["content"][0]["text"])


async def test_lists_have_every_declared_field() -> None:
    server = make_server()
    icon = Icon("https://example.com/i.png")

    @server.tool(name="look_up", title="Look up", description="Looks.", icons=[icon], meta={"acme/x": 1})
    def find(q: str) -> int:
        return 1

    @server.tool
    def plain(q: Annotated[str, Field(description="What")] = "x") -> None:
        """Search for it.

        More on that.
        """

    @server.resource(
        "a://b", title="B", mime_type="text/plain", annotations=Annotations(audience=[Role.USER], priority=1), size=3
    )
    def named() -> str:
        """The B."""
        return "abc"

    @server.prompt(title="Greeting")
    def greet(name: Annotated[str, Field(title="Name", description="Whose")], how: str = "kindly") -> str:
        """Greet a person."""
        return f"Greet {name} {how}"

    client = TestClient(server)
    found, other = await client.list_tools()
    assert found["_meta"] == {"acme/x": 1}
    assert found["outputSchema"]["properties"] == {"result": {"type": "integer"}}
    assert (found["name"], found["title"], found["description"]) == ("look_up", "Look up", "Looks.")
    assert found["icons"][0]["src"] == icon.src
    assert (other["name"], other["description"].splitlines()[0]) == ("plain", "Search for it.")
    assert other["inputSchema"]["properties"]["q"]["description"] == "What"
    (listed,) = await client.list_resources()
    assert (listed["name"], listed["title"], listed["description"], listed["size"]) == ("named", "B", "The B.", 3)
    assert listed["annotations"] == {"audience": ["user"], "priority": 1}
    (asked,) = await client.list_prompts()
    name, how = asked["arguments"]
    assert (asked["title"], name["title"], name["description"]) == ("Greeting", "Name", "Whose")
    assert (name["required"], how.get("required", False)) == (True, False)


class Struct(msgspec.Struct):
    id: int


@dataclasses.dataclass
class Data:
    id: int


class DomainError(Exception):
    """Something of the project's."""


async def test_guards_interceptors_and_exception_handlers_take_turns() -> None:
    server, order = make_server(), []

    async def is_admin(ctx: Context) -> bool:
        order.append(f"guard of {ctx.tool_name}")
        return ctx.headers.get("x-role") == "admin"

    async def audit(ctx: Context, proceed: Any) -> Any:
        order.append("before")
        result = await proceed()
        order.append("after")
        return result

    def handle(problem: Exception, ctx: Context) -> Any:
        raise ToolError(f"Sorry: {problem}")

    @server.tool(guards=[is_admin], interceptors=[audit], exception_handlers={DomainError: handle})
    async def act(fail: bool) -> str:
        order.append("act")
        if fail:
            raise DomainError("closed")
        return "done"

    refused = await TestClient(server).call_tool("act", {"fail": False})
    assert refused["isError"]
    assert "'act' may not be used" in refused["content"][0]["text"]
    assert "is_admin" not in str(refused)
    admin = TestClient(server, headers={"X-Role": "admin"})
    assert await call_text(admin, "act", fail=False) == "done"
    assert order == ["guard of act", "guard of act", "before", "act", "after"]
    failed = await admin.call_tool("act", {"fail": True})
    assert (failed["isError"], failed["content"][0]["text"]) == (True, "Sorry: closed")


async def test_resources_return_every_kind_of_value() -> None:
    server = make_server()
    returned: dict[str, Any] = {
        "text": "a",
        "bytes": b"a",
        "blob": BlobResourceContents(b"a", mime_type="application/pdf"),
        "several": ResourceResult(["readme", b"\x89PNG", {"a": 1}, TextResourceContents("t", "other://x")]),
        "dict": {"a": 1},
    }

    @server.resource("r://{kind}")
    def read(kind: str) -> Any:
        return returned[kind]

    client = TestClient(server)
    assert (await client.read_resource("r://text"))[0]["text"] == "a"
    assert (await client.read_resource("r://bytes"))[0]["blob"] == "YQ=="
    assert (await client.read_resource("r://blob"))[0]["mimeType"] == "application/pdf"
    several = await client.read_resource("r://several")
    assert [contents["uri"] for contents in several] == ["r://several"] * 3 + ["other://x"]
    assert (await client.read_resource("r://dict"))[0]["text"] == '{"a":1}'


async def test_completions_are_declared() -> None:
    server = make_server()

    @server.prompt
    def greet(name: str, language: str = "en") -> str:
        return name

    @server.resource("rooms://{number}")
    def room(number: int) -> str:
        return str(number)

    @server.completion("greet", "name")
    async def names(partial: str, arguments: dict[str, str]) -> Completion:
        return Completion([f"{partial}lice", arguments.get("language", "")], total=7, has_more=True)

    @server.completion("rooms://{number}", "number")
    def numbers(partial: str) -> list[str]:
        return [str(number) for number in range(200)]

    client = TestClient(server)
    assert await client.complete("greet", "name", "A", {"language": "no"}) == ["Alice", "no"]
    params = {"ref": {"type": "ref/resource", "uri": "rooms://{number}"}, "argument": {"name": "number", "value": ""}}
    found = (await client.request("completion/complete", params))["completion"]
    assert (len(found["values"]), found["hasMore"], found["total"]) == (100, True, 200)


async def test_classes_are_toolsets() -> None:
    class Shop(Toolset):
        prefix = "shop_"

        def __init__(self) -> None:
            self.stock = {"tea": 3}

        @tool
        async def search(self, query: str) -> int:
            """Search items."""
            return self.stock.get(query, 0)

        @resource("shop://stock")
        def all(self) -> dict[str, int]:
            return self.stock

        @prompt
        def advertise(self) -> str:
            return "Tea!"

    client = TestClient(make_server(toolsets=[Shop()]))
    assert await call_text(client, "shop_search", query="tea") == "3"
    assert (await client.read_resource("shop://stock"))[0]["text"] == '{"tea":3}'
    assert (await client.get_prompt("shop_advertise"))["messages"]


async def test_structured_content_is_repeated_as_text() -> None:
    server = make_server()
    answers = {
        "both": ToolResult([TextContent("Sentiment: positive")], {"score": 1}),
        "data": ToolResult(structured={"score": 1}),
        "error": ToolResult("Oh no", is_error=True),
    }

    @server.tool
    def analyse(kind: str) -> ToolResult:
        return answers[kind]

    client = TestClient(server)
    both = await client.call_tool("analyse", {"kind": "both"})
    assert (both["content"][0]["text"], both["structuredContent"]) == ("Sentiment: positive", {"score": 1})
    assert await call_text(client, "analyse", kind="data") == '{"score":1}'
    failed = await client.call_tool("analyse", {"kind": "error"})
    assert (failed["isError"], failed["content"][0]["text"]) == (True, "Oh no")


async def test_the_example_of_the_python_api_works() -> None:
    server = make_server()

    @server.tool()
    def process_data(data: str, format: Literal["json", "csv", "xml"] = "json", validate: bool = True) -> str:
        """Tool with parameter validation."""
        if validate and not data.strip():
            raise ToolError("Data cannot be empty")
        return f"Processed {len(data)} characters as {format}"

    @server.resource("file://{path}")
    def read_file(path: str) -> str:
        return path

    @server.prompt()
    def analyze_code(code: str) -> str:
        return f"Please analyze this code: {code}"

    client = TestClient(server)
    assert await call_text(client, "process_data", data="abc", format="csv") == "Processed 3 characters as csv"
    assert await call_text(client, "process_data", data=" ") == "Data cannot be empty"
    assert (await client.call_tool("process_data", {"data": "abc", "format": "yaml"}))["isError"]
    assert (await client.read_resource("file://a"))[0]["text"] == "a"
    assert "analyze" in str(await client.get_prompt("analyze_code", {"code": "1"}))


async def test_handwritten_handlers_answer() -> None:
    icons, said = [{"src": "https://example.com/i.png", "sizes": ["any"]}], {"priority": 1}
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    entry = {"name": "ping", "inputSchema": schema, "icons": icons, "annotations": {"readOnlyHint": True}}
    provider = Handlers(
        list_tools=lambda ctx: [entry],
        call_tool=lambda name, arguments, ctx: f"{name} {arguments}",
        list_resources=lambda ctx: [{"uri": "a://b", "name": "b", "icons": icons, "annotations": said}],
        read_resource=lambda uri, ctx: uri,
        list_prompts=lambda ctx: [{"name": "greet", "arguments": [{"name": "who", "required": True}]}],
        get_prompt=lambda name, arguments, ctx: f"{name} {arguments['who']}",
        complete=lambda target, argument, value, arguments, ctx: [f"{target}.{argument}"],
    )
    client = TestClient(make_server(providers=[provider]))
    (listed,) = await client.list_tools()
    assert (listed["name"], listed["icons"], listed["annotations"]) == ("ping", icons, {"readOnlyHint": True})
    (listed,) = await client.list_resources()
    assert (listed["icons"], listed["annotations"]) == (icons, said)
    assert await call_text(client, "ping", a=1) == "ping {'a': 1}"
    assert (await client.call_tool("ping", {"a": "x"}))["isError"]
    assert (await client.read_resource("a://b"))[0]["text"] == "a://b"
    assert "greet Ada" in str(await client.get_prompt("greet", {"who": "Ada"}))
    assert await client.complete("greet", "who", "A") == ["greet.who"]


async def test_files_and_directories_are_served() -> None:
    here = Path(__file__).parent
    file = FileResource(here / "__init__.py", "code://init", name="init", mime_type="text/x-python")
    tree = DirectoryProvider(here, "*.py", uri_prefix="code://tests/", recursive=False)
    client = TestClient(make_server(providers=[file, tree]))
    listed = {found["uri"] for found in await client.list_resources()}
    assert {"code://init", "code://tests/test_declarations.py"} <= listed
    (contents,) = await client.read_resource("code://tests/test_declarations.py")
    assert contents["text"] == Path(__file__).read_text(encoding="utf-8")
