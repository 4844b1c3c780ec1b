"""Tools, resources, prompts and completions: how they are declared and listed, and what may be returned."""

import dataclasses
import uuid
from datetime import date, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Optional, TypedDict

import msgspec
import pytest
from pydantic import BaseModel, Field

from mcp_django import (
    Annotations,
    BlobResourceContents,
    Completion,
    Context,
    Depends,
    Handlers,
    Icon,
    MCPError,
    PromptMessage,
    PromptResult,
    ResourceResult,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
    ToolError,
    ToolResult,
    Toolset,
    prompt,
    resource,
    tool,
)
from mcp_django.protocol.types import Role
from mcp_django.providers import DirectoryProvider, FileResource
from mcp_django.schema import DeclarationError
from mcp_django.server.registry import METHODS, Methods
from mcp_django.testing import Client
from tests.coming_from.table import exercise
from tests.server.engine import HANDSHAKE, STATELESS, make_server

BOTH = (HANDSHAKE, STATELESS)


async def text(client: Client, name: str, **arguments: Any) -> str:
    """What a tool says."""
    return str((await client.call_tool(name, arguments))["content"][0]["text"])


@exercise
async def lists_have_every_field() -> None:
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
        """Greet somebody."""
        return f"Greet {name} {how}"

    client = Client(server)
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


@exercise
async def hints_are_written_either_way() -> None:
    server = make_server()
    server.tool(lambda: None, name="a", annotations=ToolAnnotations(read_only=True, destructive=False))
    server.tool(lambda: None, name="b", annotations={"readOnlyHint": True, "destructiveHint": False})
    a, b = await Client(server).list_tools()
    assert a["annotations"] == b["annotations"] == {"readOnlyHint": True, "destructiveHint": False}


@exercise
async def tags_travel_in_meta() -> None:
    server = make_server()
    server.tool(lambda: None, name="a", tags={"search"}, meta={"acme/x": 1})
    (a,) = await Client(server).list_tools()
    assert "tags" not in a
    assert a["_meta"]["acme/x"] == 1
    assert ["search"] in a["_meta"].values()


class Point(TypedDict):
    x: int


@exercise
async def an_output_schema_comes_from_a_type() -> None:
    server = make_server()
    for name, schema in (("a", Point), ("b", {"type": "object", "properties": {"x": {"type": "integer"}}})):
        server.tool(lambda: {"x": 1}, name=name, output_schema=schema)
    for entry in await Client(server).list_tools():
        assert entry["outputSchema"]["properties"]["x"]["type"] == "integer"
    assert (await Client(server).call_tool("a"))["structuredContent"] == {"x": 1}


class Model(BaseModel):
    id: int = Field(description="User ID")


class Struct(msgspec.Struct):
    id: int


@dataclasses.dataclass
class Data:
    id: int


@exercise
async def every_type_has_a_schema() -> None:
    server = make_server()

    @server.tool
    def take(
        a: str,
        b: int,
        c: float,
        d: bool,
        e: list[int],
        f: dict[str, int],
        g: Optional[int],  # noqa: UP045
        h: Literal["x", "y"],
        i: Annotated[int, Field(ge=0)],
        j: Model,
        k: Struct,
        m: Data,
        n: Point,
        o: uuid.UUID,
        p: datetime,
        q: date,
        r: Path,
    ) -> list[str]:
        return [type(value).__name__ for value in (j, k, m, o, p, q)]

    (entry,) = await Client(server).list_tools()
    schema = entry["inputSchema"]["properties"]
    assert [schema[name]["type"] for name in "abcdef"] == ["string", "integer", "number", "boolean", "array", "object"]
    assert (schema["h"]["enum"], schema["i"]["minimum"], schema["o"]["format"]) == (["x", "y"], 0, "uuid")
    row = {"id": 1}
    given = {"a": "", "b": 1, "c": 1.5, "d": True, "e": [1], "f": {"x": 1}, "g": None, "h": "x", "i": 0}
    given |= {"j": row, "k": row, "m": row, "n": {"x": 1}, "o": str(uuid.uuid4()), "p": "2030-01-01T00:00:00Z"}
    made = await Client(server).call_tool("take", {**given, "q": "2030-01-01", "r": "/tmp"})
    assert made["structuredContent"]["result"] == ["Model", "Struct", "Data", "UUID", "datetime", "date"]


@exercise
async def docstrings_describe_parameters() -> None:
    server = make_server()

    @server.tool
    def google(a: int) -> int:
        """Do it.

        Args:
            a: The number.

        Returns:
            Another one.

        Raises:
            ValueError: If it is wrong.

        Example:
            google(1)
        """
        return a

    @server.tool
    def numpy(a: int) -> int:
        """Do it.

        Parameters
        ----------
        a : int
            The number.
        """
        return a

    @server.tool
    def sphinx(a: int) -> int:
        """Do it.

        :param a: The number.
        """
        return a

    for entry in await Client(server).list_tools():
        assert entry["inputSchema"]["properties"]["a"]["description"] == "The number."
        assert entry["description"] == "Do it."


@exercise
async def a_context_stands_anywhere() -> None:
    server = make_server()

    @server.tool
    async def one(anything: Context, a: int) -> str:
        return f"{anything.tool_name} {a}"

    @server.tool
    async def two(a: int, tool_ctx: Context | None = None) -> str:
        assert tool_ctx is not None
        return f"{tool_ctx.tool_name} {a}"

    client = Client(server)
    assert [list(entry["inputSchema"]["properties"]) for entry in await client.list_tools()] == [["a"], ["a"]]
    assert [await text(client, name, a=1) for name in ("one", "two")] == ["one 1", "two 1"]


class DomainError(Exception):
    """Something of the project's."""


@exercise
async def guards_interceptors_and_handlers_take_turns() -> None:
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

    refused = await Client(server).call_tool("act", {"fail": False})
    assert refused["isError"]
    assert "'act' may not be used" in refused["content"][0]["text"]
    assert "is_admin" not in str(refused)
    admin = Client(server, headers={"X-Role": "admin"})
    assert await text(admin, "act", fail=False) == "done"
    assert order == ["guard of act", "guard of act", "before", "act", "after"]
    failed = await admin.call_tool("act", {"fail": True})
    assert (failed["isError"], failed["content"][0]["text"]) == (True, "Sorry: closed")


@exercise
async def metadata_is_for_hooks() -> None:
    server, seen = make_server(), []

    def look(ctx: Context) -> None:
        seen.append(
            (ctx.tool_name, ctx.headers["x-a"], ctx.metadata.get("role"), ctx.metadata.get("none"), ctx.session)
        )

    @server.tool(metadata={"role": "admin"}, guards=[look])
    async def act(ctx: Context) -> str:
        return str(ctx.metadata["role"])

    assert await text(Client(server, headers={"X-A": "1"}), "act") == "admin"
    assert seen == [("act", "1", "admin", None, None)]


@exercise
async def a_resource_returns_what_it_likes() -> None:
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

    client = Client(server)
    assert (await client.read_resource("r://text"))[0]["text"] == "a"
    assert (await client.read_resource("r://bytes"))[0]["blob"] == "YQ=="
    assert (await client.read_resource("r://blob"))[0]["mimeType"] == "application/pdf"
    several = await client.read_resource("r://several")
    assert [contents["uri"] for contents in several] == ["r://several"] * 3 + ["other://x"]
    assert (await client.read_resource("r://dict"))[0]["text"] == '{"a":1}'


@exercise
async def a_prompt_returns_what_it_likes() -> None:
    server = make_server()
    returned: dict[str, Any] = {
        "text": "Hello",
        "messages": [PromptMessage("user", TextContent("Hello")), PromptMessage("assistant", TextContent("Hi"))],
        "described": PromptResult(["Hello"], "A greeting"),
    }

    @server.prompt(name="greet", title="Greet", description="Greets.")
    def make(kind: str) -> Any:
        return returned[kind]

    client = Client(server)
    hello = {"role": "user", "content": {"type": "text", "text": "Hello"}}
    assert (await client.get_prompt("greet", {"kind": "text"}))["messages"] == [hello]
    assert (await client.get_prompt("greet", {"kind": "messages"}))["messages"][1]["role"] == "assistant"
    described = await client.get_prompt("greet", {"kind": "described"})
    assert (described["description"], described["messages"]) == ("A greeting", [hello])


@exercise
async def completions_are_declared() -> None:
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

    client = Client(server)
    assert await client.complete("greet", "name", "A", {"language": "no"}) == ["Alice", "no"]
    params = {"ref": {"type": "ref/resource", "uri": "rooms://{number}"}, "argument": {"name": "number", "value": ""}}
    found = (await client.request("completion/complete", params))["completion"]
    assert (len(found["values"]), found["hasMore"], found["total"]) == (100, True, 200)


@exercise
async def completions_are_checked() -> None:
    server = make_server()
    server.prompt(lambda name: name, name="greet")
    server.completion("greet", "name")(lambda partial: "not a list")
    client = Client(server, raise_exceptions=False)
    ref = {"type": "ref/prompt", "name": "greet"}
    for ref_, argument, context in (
        ({"type": "ref/other", "name": "greet"}, {"name": "name", "value": ""}, {}),
        (ref, {"name": "name", "value": 1}, {}),
        (ref, {"name": "name", "value": ""}, {"arguments": {"a": 1}}),
    ):
        with pytest.raises(MCPError) as refused:
            await client.request("completion/complete", {"ref": ref_, "argument": argument, "context": context})
        assert refused.value.code == -32602
    with pytest.raises(MCPError) as refused:
        await client.complete("greet", "name", "")
    assert refused.value.code == -32603


@exercise
async def a_class_is_a_toolset() -> None:
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

    client = Client(make_server(toolsets=[Shop()]))
    assert await text(client, "shop_search", query="tea") == "3"
    assert (await client.read_resource("shop://stock"))[0]["text"] == '{"tea":3}'
    assert (await client.get_prompt("shop_advertise"))["messages"]


@exercise
def a_method_outside_of_a_toolset_is_found() -> None:
    assert isinstance(METHODS, Methods)

    class NoToolset:
        @tool
        def lost(self) -> None: ...

    assert any("NoToolset.lost" in problem.source or "not a Toolset" in problem.text for problem in METHODS.problems())
    METHODS.claim(NoToolset)
    assert not METHODS.problems()


@exercise
async def dependencies_are_filled_in() -> None:
    server = make_server()

    def house(ctx: Context) -> str:
        return ctx.headers.get("x-house", "main")

    @server.tool
    def where(house: Annotated[str, Depends(house)]) -> str:
        return house

    assert await text(Client(server, headers={"X-House": "left"}), "where") == "left"


@exercise
async def what_a_call_opens_is_closed() -> None:
    server, said = make_server(), []

    async def connection() -> Any:
        said.append("open")
        try:
            yield 7
        finally:
            said.append("closed")

    @server.tool
    async def use(number: Annotated[int, Depends(connection)]) -> int:
        said.append(str(number))
        raise ToolError("no")

    assert (await Client(server).call_tool("use"))["isError"]
    assert said == ["open", "7", "closed"]


@exercise
async def structured_content_is_repeated_as_text() -> None:
    server = make_server()
    answers = {
        "both": ToolResult([TextContent("Sentiment: positive")], {"score": 1}),
        "data": ToolResult(structured={"score": 1}),
        "error": ToolResult("Oh no", is_error=True),
    }

    @server.tool
    def analyse(kind: str) -> ToolResult:
        return answers[kind]

    client = Client(server)
    both = await client.call_tool("analyse", {"kind": "both"})
    assert (both["content"][0]["text"], both["structuredContent"]) == ("Sentiment: positive", {"score": 1})
    assert await text(client, "analyse", kind="data") == '{"score":1}'
    failed = await client.call_tool("analyse", {"kind": "error"})
    assert (failed["isError"], failed["content"][0]["text"]) == (True, "Oh no")


@exercise
async def structured_output_comes_from_annotations() -> None:
    server = make_server()

    @server.tool
    def model() -> Model:
        return Model(id=1)

    @server.tool
    def data() -> Data:
        return Data(1)

    @server.tool
    def rows() -> list[dict[str, Any]]:
        return [{"id": 1}]

    for revision in (*BOTH, "2025-06-18"):
        client = Client(server, revision=revision)
        for name in ("model", "data"):
            assert (await client.call_tool(name))["structuredContent"] == {"id": 1}
        assert (await client.call_tool("rows"))["structuredContent"] == {"result": [{"id": 1}]}


@exercise
async def none_as_a_default_makes_optional() -> None:
    server = make_server()

    @server.tool
    def take(config: dict[str, Any] = None) -> str:  # type: ignore[assignment]  # noqa: RUF013
        return str(config)

    client = Client(server)
    assert [await text(client, "take", **given) for given in ({}, {"config": None}, {"config": {"a": 1}})] == [
        "None",
        "None",
        "{'a': 1}",
    ]


@exercise
async def the_example_of_the_python_api_works() -> None:
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

    client = Client(server)
    assert await text(client, "process_data", data="abc", format="csv") == "Processed 3 characters as csv"
    assert await text(client, "process_data", data=" ") == "Data cannot be empty"
    assert (await client.call_tool("process_data", {"data": "abc", "format": "yaml"}))["isError"]
    assert (await client.read_resource("file://a"))[0]["text"] == "a"
    assert "analyze" in str(await client.get_prompt("analyze_code", {"code": "1"}))


@exercise
async def unexpected_arguments_are_refused() -> None:
    server = make_server()
    server.tool(lambda: 1, name="nothing")
    client = Client(server)
    (entry,) = await client.list_tools()
    schema = entry["inputSchema"]
    assert (schema["type"], schema.get("properties", {}), schema["additionalProperties"]) == ("object", {}, False)
    refused = await client.call_tool("nothing", {"surprise": 1})
    assert refused["isError"]
    assert "surprise" in refused["content"][0]["text"]
    with pytest.raises(MCPError) as wrong:
        await client.request("tools/call", {"name": "nothing", "arguments": []})
    assert wrong.value.code == -32602
    with pytest.raises(MCPError) as older:
        await Client(server, revision="2025-06-18").call_tool("nothing", {"surprise": 1})
    assert older.value.code == -32602


@exercise
def declarations_are_checked_at_once() -> None:
    server = make_server()
    server.tool(lambda: 1, name="one")
    with pytest.raises(DeclarationError, match="already registered"):
        server.tool(lambda: 2, name="one")
    with pytest.raises(DeclarationError, match="object"):
        server.tool(lambda **given: 1, name="two", input_schema={"type": "array"})


@exercise
async def hand_written_handlers_answer() -> None:
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
    client = Client(make_server(providers=[provider]))
    (listed,) = await client.list_tools()
    assert (listed["name"], listed["icons"], listed["annotations"]) == ("ping", icons, {"readOnlyHint": True})
    (listed,) = await client.list_resources()
    assert (listed["icons"], listed["annotations"]) == (icons, said)
    assert await text(client, "ping", a=1) == "ping {'a': 1}"
    assert (await client.call_tool("ping", {"a": "x"}))["isError"]
    assert (await client.read_resource("a://b"))[0]["text"] == "a://b"
    assert "greet Ada" in str(await client.get_prompt("greet", {"who": "Ada"}))
    assert await client.complete("greet", "who", "A") == ["greet.who"]


@exercise
async def declarations_and_providers_are_mixed() -> None:
    entries = [{"name": name, "inputSchema": {"type": "object"}} for name in ("both", "provided")]
    provider = Handlers(list_tools=lambda ctx: entries, call_tool=lambda name, arguments, ctx: f"{name}, provided")
    server = make_server(providers=[provider])
    server.tool(lambda: "both, declared", name="both")
    client = Client(server)
    assert [found["name"] for found in await client.list_tools()] == ["both", "provided"]
    assert [await text(client, name) for name in ("both", "provided")] == ["both, declared", "provided, provided"]


@exercise
async def lists_come_in_pages() -> None:
    server = make_server(options={"page_size": 2})
    for name in "abcde":
        server.tool(lambda: 1, name=name)
    client = Client(server)
    first = await client.request("tools/list")
    assert len(first["tools"]) == 2
    assert first["nextCursor"]
    assert [found["name"] for found in await client.list_tools()] == list("abcde")


@exercise
async def files_and_directories_are_served() -> None:
    here = Path(__file__).parent
    file = FileResource(here / "__init__.py", "code://init", name="init", mime_type="text/x-python")
    tree = DirectoryProvider(here, "*.py", uri_prefix="code://tests/", recursive=False)
    client = Client(make_server(providers=[file, tree]))
    listed = {found["uri"] for found in await client.list_resources()}
    assert {"code://init", "code://tests/declarations.py"} <= listed
    (contents,) = await client.read_resource("code://tests/declarations.py")
    assert contents["text"] == Path(__file__).read_text(encoding="utf-8")


@exercise
async def tools_come_and_go_at_run_time() -> None:
    server = make_server()

    @server.tool
    async def swap(ctx: Context) -> bool:
        ctx.server.tool(lambda: "here", name="later")
        return ctx.server.remove("tool", "swap")

    client = Client(server)
    before = server.registry.version
    await client.call_tool("swap")
    assert [found["name"] for found in await client.list_tools()] == ["later"]
    assert server.registry.version > before, "which is what those who listen are told by"
