"""Sampling in every revision (client/sampling): requests fit the schema, and content that the revision cannot
express is refused in words.
"""

import pytest

from tests.interaction.clients import STATELESS, answers
from tests.interaction.transports import contract

WITH_TOOLS = ["2025-11-25", "2026-07-28"]
CAPABLE = {"sampling": {"tools": {}, "context": {}}}


def make_reply(content, stop="endTurn"):
    content = {"type": "text", "text": content} if isinstance(content, str) else content
    return {"role": "assistant", "content": content, "model": "m1", "stopReason": stop}


def make_tool_use(name, id="u1", **arguments):
    return {"type": "tool_use", "id": id, "name": name, "input": arguments}


def text(reply):
    return reply.result["content"][0]["text"]


def script(lines, asked):
    inner = answers(lines)

    def answer(method, params):
        asked.append(params)
        return inner(method, params)

    return answer


@contract
@pytest.mark.revisions(*WITH_TOOLS)
async def test_the_model_uses_tools_until_it_has_its_answer(connect, checkpoints):
    asked = []
    lines = [
        make_reply([make_tool_use("count", word="door"), make_tool_use("add", "u2", a=1, b=2)], "toolUse"),
        make_reply("four and three"),
    ]
    client = await connect(capabilities=CAPABLE)
    reply = await client.ask_tool("sample_with_tools", {}, script(lines, asked))
    assert text(reply) == "four and three after 4 messages"
    assert [tool["name"] for tool in asked[0]["tools"]] == ["count", "add"]
    results = asked[1]["messages"][-1]["content"]
    assert [(one["toolUseId"], one["content"][0]["text"]) for one in results] == [("u1", '{"letters":4}'), ("u2", "3")]
    assert checkpoints.counts["count"] == 1


async def test_a_client_without_sampling_tools_is_not_sent_any(connect, revision):
    client = await connect(capabilities={"sampling": {} if revision in WITH_TOOLS else {"tools": {}}})
    reply = await client.tool("sample_with_tools")
    if revision == STATELESS:
        assert reply.refused(400, -32021)
        assert reply.error["data"] == {"requiredCapabilities": {"sampling": {"tools": {}}}}
    else:
        assert (text(reply), len(reply.messages)) == ("The client does not support sampling.tools", 1)


async def test_a_message_of_several_blocks_has_the_form_of_the_revision(connect, revision):
    asked = []
    reply = await (await connect()).ask_tool("sample_media", {}, script([make_reply("a door")], asked))
    assert text(reply) == "a door"
    kinds = [
        [
            block["type"]
            for block in (message["content"] if isinstance(message["content"], list) else [message["content"]])
        ]
        for message in asked[0]["messages"]
    ]
    assert kinds == ([["text", "image"]] if revision in WITH_TOOLS else [["text"], ["image"]])


async def test_audio_is_sent_where_the_revision_has_it(connect, revision):
    client = await connect()
    if revision == "2024-11-05":
        reply = await client.tool("sample_sound")
        assert (
            text(reply)
            == "The client's model cannot receive this message: sampling in revision 2024-11-05 has no audio"
        )
        assert reply.result["isError"]
    else:
        assert text(await client.ask_tool("sample_sound", {}, answers([make_reply("a door")]))) == "a door"


async def test_a_sampled_value_is_requested_until_it_is_valid(connect, revision, subtests):
    for capabilities in [{"sampling": {}}, CAPABLE]:
        with subtests.test(capabilities=capabilities):
            asked = []
            client = await connect(capabilities=capabilities)
            lines = [make_reply("Yes!"), make_reply('```json\n{"good": true, "why": "it closes"}\n```')]
            reply = await client.ask_tool("sample_verdict", {}, script(lines, asked))
            assert '"good":true' in text(reply)
            assert [message["role"] for message in asked[1]["messages"]] == ["user", "assistant", "user"]
            declared = revision not in WITH_TOOLS or "context" in capabilities["sampling"]
            assert asked[0].get("includeContext") == ("thisServer" if declared else None)
