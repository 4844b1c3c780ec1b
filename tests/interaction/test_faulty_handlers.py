"""Handlers that misbehave: the client still gets a message of its revision, and the next request is served."""

import json

from tests.interaction.faulty_handlers import ODD
from tests.interaction.transports import contract


def no_constants(text):
    raise AssertionError(f"{text} is no JSON")


async def still_served(client):
    assert (await client.tool("add", {"a": 1, "b": 2})).result["content"][0]["text"] == "3"


def assert_valid_response(reply):
    """A well-formed answer: strict JSON, and a result or an error."""
    assert reply.status in (200, None)
    bodies = reply.body.splitlines() if reply.status is None else [reply.body]
    if reply.is_stream:
        # The event that a stream opens with has no data.
        lines = [line[5:].strip() for line in reply.body.splitlines() if line.startswith(b"data:")]
        bodies = [body for body in lines if body]
    for body in bodies:
        json.loads(body, parse_constant=no_constants)
    assert "result" in reply.message or reply.error["code"] == -32603


@contract
async def test_an_unusual_return_value_is_a_valid_response(either, subtests):
    for kind in ODD:
        for name in ["odd", "odd_structured"]:
            with subtests.test(kind=kind, name=name):
                client = await either()
                assert_valid_response(await client.tool(name, {"kind": kind}))
                await still_served(client)


async def test_a_value_without_json_form_is_an_internal_error(either, subtests):
    for kind in ["surrogate", "cycle", "deep", "object", "huge"]:
        for name in ["odd", "odd_structured"]:
            with subtests.test(kind=kind, name=name):
                reply = await (await either()).tool(name, {"kind": kind})
                if "result" in reply.message and not reply.result["isError"]:
                    assert kind in ("huge", "object", "surrogate")  # as text, or with a replacement character
                    return
                assert reply.result["content"][0]["text"].startswith("Internal error")


async def test_a_number_without_json_form_is_an_internal_error_of_a_tool_of_numbers(modern, subtests):
    for kind in ["nan", "infinity"]:
        with subtests.test(kind=kind):
            reply = await modern().tool("odd_number", {"kind": kind})
            assert reply.result["isError"] is True


async def test_a_value_that_violates_the_output_schema_is_an_internal_error(either):
    reply = await (await either()).tool("liar")
    assert reply.result["isError"] is True
    assert reply.result["content"][0]["text"].startswith("Internal error")
    assert b"five" not in reply.body


async def test_an_unusual_log_message_is_a_valid_message(latest_legacy, subtests):
    for kind in ["surrogate", "cycle", "object", "nan"]:
        with subtests.test(kind=kind):
            client = await latest_legacy()
            assert_valid_response(await client.tool("odd_log", {"kind": kind}))
            await still_served(client)


@contract
async def test_an_unusual_exception_is_an_internal_error(either, subtests):
    for name in [
        "cancel_itself",
        "wait_for_the_cancelled",
        "run_out",
        "stop_iterating",
        "exit_from_a_thread",
        "exit_from_the_loop",
        "group_of_errors",
    ]:
        with subtests.test(name=name):
            client = await either()
            reply = await client.tool(name)
            assert (reply.served, reply.result["isError"]) == (True, True)
            assert reply.result["content"][0]["text"].startswith("Internal error")
            assert b"swordfish" not in reply.body
            await still_served(client)


async def test_an_exit_ends_the_request_and_not_the_server(either):
    client = await either()
    reference = {"ref": {"type": "ref/prompt", "name": "exit_prompt"}, "argument": {"name": "name", "value": ""}}
    for method, params in (
        ("resources/read", {"uri": "note://exit"}),
        ("prompts/get", {"name": "exit_prompt"}),
        ("completion/complete", reference),
    ):
        assert (await client.request(method, params)).refused(200, -32603)
    await still_served(client)


async def test_unusual_resources_and_prompts_are_valid_responses(either, subtests):
    for kind in ["surrogate", "cycle", "object", "nan"]:
        with subtests.test(kind=kind):
            client = await either()
            assert_valid_response(await client.request("resources/read", {"uri": f"note://odd/{kind}"}))
            assert_valid_response(
                await client.request("prompts/get", {"name": "odd_prompt", "arguments": {"kind": kind}})
            )
            await still_served(client)
