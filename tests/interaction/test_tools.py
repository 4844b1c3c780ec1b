"""Tools: one handler, called by clients of every revision (server/tools)."""

import base64
import json

from tests.interaction.clients import META
from tests.interaction.handlers import PNG, WAV
from tests.interaction.transports import contract

BLOCK_FIELDS = {"type": "text", "text": "a text"}


async def find_listed(client, name):
    tools = (await client.request("tools/list")).result["tools"]
    return next(tool for tool in tools if tool["name"] == name)


def body(result, revision):
    """A result without the members of every result of the stateless era."""
    rest = dict(result)
    if revision == "2026-07-28":
        assert rest.pop("resultType") == "complete"
        rest["_meta"] = {key: value for key, value in rest["_meta"].items() if key != META + "serverInfo"}
        if not rest["_meta"]:
            del rest["_meta"]
    return rest


@contract
async def test_a_tool_is_listed_with_the_fields_of_the_revision(connect, revision):
    tool = await find_listed(await connect(), "rich")
    expected = {"name", "description", "inputSchema"}
    if revision >= "2025-03-26":
        expected |= {"annotations"}
    if revision >= "2025-06-18":
        expected |= {"title", "outputSchema", "_meta"}
    if revision >= "2025-11-25":
        expected |= {"icons"}
    assert set(tool) == expected


async def test_annotations_are_listed_as_the_wire_names_them(connect, revision):
    tool = await find_listed(await connect(), "rich")
    expected = {"title": "All of it", "readOnlyHint": True, "idempotentHint": True, "openWorldHint": False}
    assert tool.get("annotations") == (None if revision == "2024-11-05" else expected)


async def test_tags_travel_in_the_meta_of_a_tool(modern):
    tool = await find_listed(modern(), "rich")
    assert tool["_meta"]["example.com/colour"] == "blue"
    assert ["demo"] in tool["_meta"].values()


async def test_descriptions_and_schemas_come_from_the_function(either):
    client = await either()
    tool = await find_listed(client, "add")
    schema = tool["inputSchema"]
    assert tool["description"] == "Add two integers."
    assert schema["properties"]["a"]["description"] == "The first."
    assert (schema["type"], set(schema["properties"]), schema["required"]) == ("object", {"a", "b"}, ["a", "b"])
    assert schema["additionalProperties"] is False
    assert (await find_listed(client, "nothing"))["inputSchema"]["type"] == "object"
    assert set((await find_listed(client, "steps"))["inputSchema"]["properties"]) == {"count"}, "not the context"


async def test_a_list_is_the_same_every_time_in_the_order_of_names(either):
    client = await either()
    first, second = await client.request("tools/list"), await client.request("tools/list")
    assert first.result == second.result
    names = [tool["name"] for tool in first.result["tools"]]
    assert names == sorted(names)


@contract
async def test_a_result_has_text_and_from_2025_06_18_on_structured_content(connect, revision):
    reply = await (await connect()).tool("add", {"a": 2, "b": 3})
    expected = {"content": [{"type": "text", "text": "5"}], "isError": False}
    if revision >= "2025-06-18":
        expected["structuredContent"] = {"result": 5}
    assert body(reply.result, revision) == expected


async def test_a_plain_function_answers_like_an_async_one(connect):
    reply = await (await connect()).tool("add_in_a_thread", {"a": 2, "b": 3})
    assert reply.result["content"] == [{"type": "text", "text": "5"}]


async def test_a_result_of_none_has_empty_content(either):
    reply = await (await either()).tool("nothing")
    assert reply.result["content"] == []


async def test_arguments_may_be_omitted(either):
    reply = await (await either()).request("tools/call", {"name": "nothing"})
    assert "error" not in reply.message
    assert not reply.result.get("isError")


async def test_a_list_is_wrapped_in_an_object(connect, revision):
    client = await connect()
    reply = await client.tool("listing")
    assert reply.result["content"][0]["text"] == "[1,2,3]"
    if revision >= "2025-06-18":
        assert reply.result["structuredContent"] == {"result": [1, 2, 3]}
        assert (await find_listed(client, "listing"))["outputSchema"]["type"] == "object"


@contract
async def test_every_content_type_has_the_form_of_the_revision(connect, revision):
    content = (await (await connect()).tool("rich")).result["content"]
    kinds = [block["type"] for block in content]
    assert kinds[0:2] == ["text", "image"]
    assert kinds[4] == "resource"
    if revision >= "2025-03-26":
        assert kinds[2] == "audio"
    else:
        assert kinds[2] in ("text", "resource")
    if revision >= "2025-06-18":
        assert kinds[3] == "resource_link"
    else:
        assert "note://static" in json.dumps(content[3])
        assert kinds[3] in ("text", "resource")


async def test_bytes_travel_as_base64(modern):
    content = (await modern().tool("rich")).result["content"]
    assert base64.b64decode(content[1]["data"], validate=True) == PNG
    assert base64.b64decode(content[2]["data"], validate=True) == WAV


async def test_annotations_of_content_have_the_fields_of_the_revision(connect, revision):
    block = (await (await connect()).tool("rich")).result["content"][0]
    expected = {"audience": ["user"], "priority": 0.5}
    if revision >= "2025-06-18":
        expected["lastModified"] = "2026-01-02T03:04:05Z"
    assert block["annotations"] == expected
    assert ("_meta" in block) is (revision >= "2025-06-18")


async def test_a_resource_link_has_icons_from_2025_11_25_on(connect, revision):
    link = (await (await connect()).tool("rich")).result["content"][3]
    if revision >= "2025-06-18":
        assert ("icons" in link) is (revision >= "2025-11-25")


async def test_structured_content_is_left_out_before_2025_06_18(connect, revision):
    result = (await (await connect()).tool("rich")).result
    assert result.get("structuredContent") == ({"count": 5, "ratio": 0.5} if revision >= "2025-06-18" else None)


async def test_the_meta_of_a_result_reaches_every_revision(connect):
    result = (await (await connect()).tool("rich")).result
    assert result["_meta"]["example.com/result"] is True


async def test_a_tool_error_is_a_result_for_the_model(connect, revision):
    reply = await (await connect()).tool("refuse")
    expected = {"content": [{"type": "text", "text": "No seats left; try another day"}], "isError": True}
    assert (reply.served, body(reply.result, revision)) == (True, expected)


@contract
async def test_a_bug_is_reported_without_details(either, caplog):
    reply = await (await either()).tool("buggy")
    assert reply.served
    assert reply.result["isError"] is True
    assert reply.result["content"][0]["text"].startswith("Internal error")
    assert b"swordfish" not in reply.body


async def test_a_bug_is_logged_under_the_reference_that_the_client_gets(modern, caplog):
    text = (await modern().tool("buggy")).result["content"][0]["text"]
    reference = text.rsplit(maxsplit=1)[-1].strip("().")
    assert len(reference) >= 6
    assert any(reference in record.getMessage() and record.exc_info for record in caplog.records)


async def test_a_timeout_names_the_limit(either):
    reply = await (await either()).tool("too_slow")
    assert reply.result["isError"] is True
    assert "0.05" in reply.result["content"][0]["text"]


@contract
async def test_a_timeout_cancels_the_handler(modern, checkpoints):
    await modern().tool("too_slow")
    assert checkpoints.counts["never cancelled"] == 1


@contract
async def test_arguments_against_the_schema_are_an_error_of_the_revision_s_kind(
    connect, revision, checkpoints, subtests
):
    for arguments in [{"a": 1}, {"a": 1, "b": "2"}, {"a": 1, "b": True}, {"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 2.5}]:
        with subtests.test(arguments=arguments):
            checkpoints.reset()
            reply = await (await connect()).tool("add", arguments)
            assert checkpoints.counts["add"] == 0
            if revision >= "2025-11-25":
                assert (reply.served, reply.result["isError"]) == (True, True)
            else:
                assert reply.error["code"] == -32602


async def test_the_error_names_the_argument(modern):
    text = (await modern().tool("add", {"a": 1, "b": "two"})).result["content"][0]["text"]
    assert "b" in text
    assert "integer" in text


async def test_the_error_names_an_unknown_argument(modern):
    text = (await modern().tool("add", {"a": 1, "b": 2, "colour": "red"})).result["content"][0]["text"]
    assert "colour" in text


async def test_a_float_without_fraction_is_an_integer(either):
    reply = await (await either()).tool("add", {"a": 1.0, "b": 2})
    assert reply.result["content"][0]["text"] == "3"


async def test_an_integer_beyond_64_bits_is_refused(modern):
    client = modern()
    message = client.request_message("tools/call", {"name": "add", "arguments": {"a": 2**70, "b": 1}})
    reply = await client.post(message)
    assert "isError" not in reply.message.get("result", {}) or reply.result["isError"]


async def test_arguments_that_are_no_object_are_invalid_params(either, subtests):
    for arguments in [[], "text", 7]:
        with subtests.test(arguments=arguments):
            reply = await (await either()).request("tools/call", {"name": "add", "arguments": arguments})
            assert reply.error["code"] == -32602


async def test_an_unknown_tool_is_invalid_params(either):
    reply = await (await either()).tool("no_such_tool")
    assert reply.error["code"] == -32602


async def test_a_call_without_a_name_is_invalid_params(either, subtests):
    for params in [{}, {"name": 7}, {"name": None}]:
        with subtests.test(params=params):
            reply = await (await either()).request("tools/call", params)
            assert reply.error["code"] == -32602


async def test_the_id_is_echoed_with_its_type(either):
    client = await either()
    for id in (0, 1, -5, "1", "", "é" * 100, 2**53):
        reply = await client.request("tools/list", id=id)
        assert reply.message["id"] == id
        assert type(reply.message["id"]) is type(id)


async def test_a_request_for_a_task_is_ignored(connect):
    reply = await (await connect()).request("tools/call", {"name": "nothing", "arguments": {}, "task": {"ttl": 60000}})
    assert reply.result["content"] == []


async def test_a_handler_sees_the_caller_and_the_transport(modern):
    client = modern(token="bob", headers={"user-agent": "probe"})
    seen = (await client.tool("whoami", id=77)).result["structuredContent"]
    assert (seen["user"], seen["tool"], seen["call"]) == ("bob", "whoami", 77)
    assert seen["agent"] == ("probe" if client.transport.has_headers else None)
    assert (seen["form"], seen["url"], seen["session"], seen["authorization"]) == (True, True, False, None)


async def test_an_empty_elicitation_capability_means_forms_only(modern):
    seen = (await modern(capabilities={"elicitation": {}}).tool("whoami")).result["structuredContent"]
    assert (seen["form"], seen["url"]) == (True, False)


async def test_state_lasts_as_long_as_the_session(latest_legacy):
    client, other = await latest_legacy(), await latest_legacy()
    counts = [(await c.tool("remember")).result["structuredContent"]["result"] for c in (client, client, other)]
    assert counts == [1, 2, 1]


async def test_the_stateless_era_has_no_session_state(modern):
    client = modern()
    counts = [(await client.tool("remember")).result["structuredContent"]["result"] for _ in range(2)]
    assert counts == [1, 1]
