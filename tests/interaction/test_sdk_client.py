"""The official SDK's client, in both of its modes, against a real server."""

import asyncio
import json
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, MCPError

from tests.clients.modern_client import check

pytestmark = pytest.mark.integration

MODES = {"legacy": "2025-11-25", "auto": "2026-07-28"}


@pytest.fixture
def url(request: pytest.FixtureRequest, port: int) -> str:
    """The address of the ASGI application, or with `on_both` that of the view too."""
    return f"http://127.0.0.1:{port}{getattr(request, 'param', '/mcp')}"


on_both = pytest.mark.parametrize("url", ["/mcp", "/view/mcp"], ids=["asgi", "view"], indirect=True)


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    """Both of the client's modes; `auto` finds out that the server is modern."""
    return request.param


class User:
    """A user that answers every question, and records it."""

    def __init__(self, action: str = "accept") -> None:
        self.action, self.asked = action, list[str]()

    async def elicit(self, context: Any, params: Any) -> types.ElicitResult:
        self.asked.append(params.message)
        if self.action != "accept":
            return types.ElicitResult(action=self.action)
        content = {name: "Al" if name == "name" else "blue" for name in params.requested_schema["properties"]}
        return types.ElicitResult(action="accept", content=content)

    async def sample(self, context: Any, params: Any) -> types.CreateMessageResult:
        self.asked.append("sample")
        text = types.TextContent(type="text", text="Paris")
        return types.CreateMessageResult(role="assistant", content=text, model="m")

    async def roots(self, context: Any) -> types.ListRootsResult:
        self.asked.append("roots")
        return types.ListRootsResult(roots=[types.Root(uri="file:///work", name="Work")])


def with_client(url: str, mode: str, use: Any, user: User | None = None, **options: Any) -> Any:
    """Run `use(client)` with a connected client."""
    user = user or User()

    async def run() -> Any:
        async with Client(
            url,
            mode=mode,
            elicitation_callback=user.elicit,
            sampling_callback=user.sample,
            list_roots_callback=user.roots,
            **options,
        ) as client:
            return await use(client)

    return asyncio.run(run())


def call(url: str, mode: str, name: str, arguments: dict[str, Any] | None = None, user: User | None = None) -> Any:
    return with_client(url, mode, lambda client: client.call_tool(name, arguments or {}), user)


def test_the_client_agrees_on_the_revision_of_its_mode(url: str, mode: str) -> None:
    async def use(client: Client) -> str:
        return client.protocol_version

    assert with_client(url, mode, use) == MODES[mode]


def test_tools_are_listed(url: str, mode: str) -> None:
    tools = with_client(url, mode, lambda client: client.list_tools()).tools
    assert {"add_numbers", "structured_weather", "json_schema_2020_12_tool"} <= {tool.name for tool in tools}


@on_both
def test_a_tool_is_called(url: str, mode: str) -> None:
    result = call(url, mode, "add_numbers", {"a": 2, "b": 3})
    assert (result.is_error, result.content[0].text, result.structured_content) == (False, "5", {"result": 5})


def test_structured_content_passes_the_client_s_own_check(url: str, mode: str) -> None:
    result = call(url, mode, "structured_weather", {"city": "Oslo"})
    assert result.structured_content["city"] == "Oslo"


def test_a_tool_s_error_is_a_result(url: str, mode: str) -> None:
    result = call(url, mode, "test_error_handling")
    assert (result.is_error, result.content[0].text) == (True, "This tool intentionally returns an error for testing")


def test_bad_arguments_are_a_result(url: str, mode: str) -> None:
    assert call(url, mode, "add_numbers", {"a": "x", "b": 3}).is_error


async def code_of(request: Any) -> int:
    """The code of the error that a request ends with."""
    with pytest.raises(MCPError) as caught:
        await request
    return caught.value.code


def test_an_unknown_tool_is_an_error(url: str, mode: str) -> None:
    assert with_client(url, mode, lambda client: code_of(client.call_tool("no_such_tool", {}))) == -32602


def test_a_mirrored_argument_is_sent_and_accepted(url: str, mode: str) -> None:
    async def use(client: Client) -> Any:
        await client.list_tools()
        return await client.call_tool("test_x_mcp_header", {"region": "Köln "})

    assert with_client(url, mode, use).content[0].text == "Region: Köln "


def test_progress_reaches_the_client(url: str, mode: str) -> None:
    received = []

    async def progress(value: float, total: float | None, message: str | None) -> None:
        received.append((value, total, message))

    async def use(client: Client) -> Any:
        return await client.call_tool("test_tool_with_progress", {}, progress_callback=progress)

    with_client(url, mode, use)
    assert [value for value, _, _ in received] == [0, 50, 100]
    assert received[0][1:] == (100, "Completed step 0 of 100")


def test_log_messages_reach_a_client_that_wants_them(url: str, mode: str) -> None:
    received = []

    async def log_message(params: Any) -> None:
        received.append(params.data)

    async def use(client: Client) -> Any:
        return await client.call_tool("test_tool_with_logging", {})

    with_client(url, mode, use, logging_callback=log_message, log_level="info")
    assert received == ["Tool execution started", "Tool processing data", "Tool execution completed"]


def test_a_tool_asks_twice(url: str, mode: str) -> None:
    user = User()
    result = call(url, mode, "test_input_required_result_multi_round", user=user)
    assert result.content[0].text == "Multi-round complete for Al who likes blue"
    assert user.asked == ["Step 1: What is your name?", "Step 2: What is your favorite color?"]


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_declining_is_not_an_error(url: str, mode: str, action: str) -> None:
    result = call(url, mode, "test_input_required_result_multi_round", user=User(action))
    assert result.content[0].text == "Multi-round complete for friend who likes none"


def test_a_tool_asks_user_model_and_client_at_once(url: str, mode: str) -> None:
    user = User()
    result = call(url, mode, "test_input_required_result_multiple_inputs", user=user)
    assert result.content[0].text == "Name: Al; Greeting: Paris; Roots: 1"
    assert sorted(user.asked) == ["What is your name?", "roots", "sample"]


def test_a_prompt_asks(url: str, mode: str) -> None:
    got = with_client(url, mode, lambda client: client.get_prompt("test_input_required_result_prompt"))
    assert got.messages[0].content.text == "Prompt with context: blue"


def test_resources_are_listed_and_read(url: str, mode: str) -> None:
    async def use(client: Client) -> Any:
        listed = {resource.uri for resource in (await client.list_resources()).resources}
        templates = {template.uri_template for template in (await client.list_resource_templates()).resource_templates}
        text = await client.read_resource("test://static-text")
        data = await client.read_resource("test://template/7/data")
        return listed, templates, text.contents[0].text, json.loads(data.contents[0].text)["id"]

    listed, templates, text, id = with_client(url, mode, use)
    assert {"test://static-text", "test://static-binary"} <= {str(uri) for uri in listed}
    assert templates == {"test://template/{id}/data"}
    assert (text, id) == ("This is the content of the static text resource.", "7")


def test_an_unknown_resource_is_an_error(url: str, mode: str) -> None:
    code = with_client(url, mode, lambda client: code_of(client.read_resource("test://nowhere")))
    assert code == (-32002 if mode == "legacy" else -32602)


def test_prompts_are_listed_and_got(url: str, mode: str) -> None:
    async def use(client: Client) -> Any:
        names = {prompt.name for prompt in (await client.list_prompts()).prompts}
        got = await client.get_prompt("test_prompt_with_arguments", {"arg1": "hello", "arg2": "world"})
        return names, got.messages[0].content.text

    names, text = with_client(url, mode, use)
    assert "test_prompt_with_image" in names
    assert text == "Prompt with arguments: arg1='hello', arg2='world'"


def test_arguments_are_completed(url: str, mode: str) -> None:
    reference = types.PromptReference(type="ref/prompt", name="test_prompt_with_arguments")
    found = with_client(url, mode, lambda client: client.complete(reference, {"name": "arg1", "value": "test"}))
    assert found.completion.values == ["test", "testing"]


def test_calls_run_side_by_side(url: str, mode: str) -> None:
    async def use(client: Client) -> Any:
        calls = [client.call_tool("slow_compute", {"seconds": 0.05, "label": str(n)}) for n in range(10)]
        return [result.content[0].text for result in await asyncio.gather(*calls)]

    assert with_client(url, mode, use) == [f"Computed {n} in 0.05 seconds" for n in range(10)]


@on_both
def test_a_handler_with_questions_loops_and_samples_runs_in_both_eras(url: str, mode: str) -> None:
    """`make clients` runs the same with the clients of other packages."""
    assert "5 questions answered" in asyncio.run(check("http", url, {"add_numbers": {"a": 2, "b": 3}}, mode))
