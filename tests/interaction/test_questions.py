"""Handlers that ask, written once and asked in both eras (client/elicitation, client/sampling).

`converse` answers as the era demands: on the call's stream, or in another round. Elicitation exists from 2025-06-18 on.
"""

import pytest

from tests.interaction.clients import Client, accept, answers
from tests.interaction.transports import contract

ELICITING = ["2025-06-18", "2025-11-25", "2026-07-28"]


pytestmark = pytest.mark.revisions(*ELICITING)


def value(content):
    """The answer to a question for one value."""
    return accept(value=content)


def text(reply):
    return reply.result["content"][0]["text"]


def raised(reply):
    """The text of a tool's error."""
    assert reply.result["isError"] is True
    return text(reply)


@contract
async def test_a_tool_asks_twice(connect):
    asked = []
    reply = await (await connect()).ask_tool("ask_twice", {}, answers([value(1), value(2)], asked))
    assert (text(reply), asked) == ("1 2", ["First?", "Second?"])


@contract
@pytest.mark.django_db(transaction=True)
def test_a_plain_function_asks_twice_from_its_thread(transport, connect):
    """On a loop of its own, so that the function has a thread to wait in."""

    async def run():
        reply = await (await connect()).ask_tool("ask_from_a_thread", {}, answers([value(1), value(2)]))
        assert text(reply) == "1 2"

    transport.run(run())


@pytest.mark.django_db(transaction=True)
def test_waiting_plain_functions_release_their_threads(transport, limits):
    limits(THREADS=4, IN_FLIGHT=64)

    async def run():
        client = await Client(transport, "2025-11-25").open()
        asking = [client.begin("tools/call", {"name": "ask_from_a_thread"}) for _ in range(40)]
        firsts = [await exchange.message() for exchange in asking]
        assert text(await client.tool("add_from_a_thread", {"a": 1, "b": 2})) == "3"
        for question in firsts:
            await client.answer(question["id"], value(1))
        seconds = [await exchange.message() for exchange in asking]
        for question in seconds:
            await client.answer(question["id"], value(2))
        assert {text(await exchange.reply()) for exchange in asking} == {"1 2"}

    transport.run(run())


@pytest.mark.django_db(transaction=True)
def test_a_question_of_a_plain_function_over_the_limit_is_refused(transport, limits):
    limits(THREADS=4, WAITING_THREADS=1)

    async def run():
        client = await Client(transport, "2025-11-25").open()
        first = client.begin("tools/call", {"name": "ask_from_a_thread"})
        question = await first.message()
        refused = await client.tool("ask_from_a_thread")
        assert refused.busy(503)
        await client.answer(question["id"], value(1))
        await client.answer((await first.message())["id"], value(2))
        assert text(await first.reply()) == "1 2"

    transport.run(run())


async def test_two_questions_at_once_are_both_answered(connect, subtests):
    for name in ["ask_pair", "ask_group"]:
        with subtests.test(name=name):

            def answer(method, params):
                return value(1 if params["message"] == "A?" else 2)

            assert text(await (await connect()).ask_tool(name, {}, answer)) == "1 2"


async def test_a_loop_asks_until_the_user_stops_it(connect):
    script = [value(True), value("Oslo"), value(True), value("Rome"), {"action": "decline"}]
    reply = await (await connect()).ask_tool("ask_loop", {}, answers(script))
    assert text(reply) == '["Oslo","Rome"]'


async def test_a_once_step_runs_once_in_a_conversation(connect, checkpoints):
    await (await connect()).ask_tool("ask_twice", {}, answers([value(1), value(2)]))
    assert checkpoints.counts["booking"] == 1


async def test_declining_is_not_an_error(connect, subtests):
    for action in ["decline", "cancel"]:
        with subtests.test(action=action):
            reply = await (await connect()).ask_tool("ask_name", {}, answers([{"action": action}]))
            assert text(reply) == action


async def test_a_form_is_sent_with_its_rules_and_read_with_its_types(connect):
    asked = []

    def answer(method, params):
        asked.append((method, params["requestedSchema"]))
        return accept(city="Oslo", nights=3)

    reply = await (await connect()).ask_tool("ask_trip", {}, answer)
    ((method, schema),) = asked
    assert (text(reply), method) == ("Oslo for 3", "elicitation/create")
    assert (schema["type"], set(schema["required"])) == ("object", {"city", "nights"})
    assert schema["properties"]["nights"]["type"] == "integer"
    assert (schema["properties"]["nights"]["minimum"], schema["properties"]["nights"]["maximum"]) == (1, 30)


async def test_a_choice_is_sent_in_the_form_of_the_revision(connect, revision):
    asked = []

    def answer(method, params):
        asked.append(params["requestedSchema"]["properties"]["value"])
        return value("green")

    reply = await (await connect()).ask_tool("ask_choice", {}, answer)
    assert text(reply) == "green"
    assert asked[0]["enum"] == ["red", "green", "blue"]


async def test_multiple_choices_exist_from_2025_11_25_on(connect, revision):
    asked = []

    def answer(method, params):
        asked.append(params["requestedSchema"]["properties"]["value"])
        return value(["red", "blue"])

    reply = await (await connect()).ask_tool("ask_several", {}, answer)
    if revision == "2025-06-18":
        assert asked == []
        assert "error" in reply.message or reply.result["isError"]
        assert "Internal error" not in reply.body.decode()
    else:
        assert asked[0]["items"]["enum"] == ["red", "green", "blue"]
        assert text(reply) == '["red","blue"]'


async def test_the_elicitation_mode_is_omitted_or_named_by_revision(connect, revision):
    seen = []

    def answer(method, params):
        seen.append(params.get("mode"))
        return value("Al")

    await (await connect()).ask_tool("ask_name", {}, answer)
    assert seen[0] in ((None,) if revision == "2025-06-18" else (None, "form"))


@contract
async def test_an_invalid_answer_is_asked_for_again_with_its_errors(connect, subtests):
    for bad, reason in [
        (accept(city="Oslo", nights=99), "nights: 99 is greater than the maximum of 30"),
        (accept(city="Oslo"), "missing field 'nights'"),
        (accept(), "missing field"),
        ({"action": "accept", "content": 7}, "the content of a form must be an object"),
    ]:
        with subtests.test(bad=bad, reason=reason):
            asked = []
            reply = await (await connect()).ask_tool(
                "ask_trip", {}, answers([bad, accept(city="Oslo", nights=3)], asked)
            )
            assert text(reply) == "Oslo for 3"
            assert asked[0] == "Where to?"
            assert asked[1].startswith(f"Where to?\n\n{reason}")


async def test_a_malformed_answer_is_asked_for_again_unchanged(connect, subtests):
    for bad in [{"action": "maybe"}, {}]:
        with subtests.test(bad=bad):
            asked = []
            reply = await (await connect()).ask_tool(
                "ask_trip", {}, answers([bad, accept(city="Oslo", nights=3)], asked)
            )
            assert (text(reply), asked) == ("Oslo for 3", ["Where to?", "Where to?"])


async def test_errors_of_a_huge_answer_are_short(connect):
    asked = []
    script = [accept(city="Oslo", nights="9" * 100_000), accept(city="Oslo", nights=3)]
    await (await connect()).ask_tool("ask_trip", {}, answers(script, asked))
    assert len(asked[1]) < 1200


@contract
async def test_a_sampling_request_has_its_options_and_returns_text(connect):
    asked = []

    def answer(method, params):
        asked.append((method, params))
        return {"role": "assistant", "content": {"type": "text", "text": "hello"}, "model": "m1"}

    reply = await (await connect()).ask_tool("ask_model", {}, answer)
    ((method, params),) = asked
    assert (text(reply), method) == ("hello by m1", "sampling/createMessage")
    assert (params["maxTokens"], params["systemPrompt"], params["temperature"]) == (20, "Be brief", 0.5)
    assert params["messages"] == [{"role": "user", "content": {"type": "text", "text": "Say hello"}}]


async def test_older_revisions_have_sampling_and_roots_but_no_elicitation(transport, subtests):
    for version in ["2024-11-05", "2025-03-26"]:
        with subtests.test(version=version):
            client = await Client(transport, version).open()
            sample = {"role": "assistant", "content": {"type": "text", "text": "hello"}, "model": "m1"}
            assert text(await client.ask_tool("ask_model", {}, answers([sample]))) == "hello by m1"
            assert (
                text(await client.ask_tool("ask_roots", {}, answers([{"roots": [{"uri": "file:///a"}]}])))
                == "file:///a"
            )
            reply = await client.tool("ask_name")
            assert len(reply.messages) == 1
            assert "Internal error" not in reply.body.decode()
            assert "error" in reply.message or reply.result["isError"]


async def test_an_answer_of_the_wrong_shape_is_refused_or_asked_for_again(latest_legacy, subtests):
    for bad in [7, None, [], "text", {}, {"content": 7}]:
        with subtests.test(bad=bad):
            client = await latest_legacy()
            exchange = client.begin("tools/call", {"name": "ask_model"})
            question = await exchange.message()
            if (await client.post({"jsonrpc": "2.0", "id": question["id"], "result": bad})).accepted:
                question = await exchange.message()
            sample = {"role": "assistant", "content": {"type": "text", "text": "hello"}, "model": "m1"}
            await client.answer(question["id"], sample)
            assert text(await exchange.reply()) == "hello by m1"


async def test_an_answer_needs_either_a_result_or_an_error(latest_legacy, subtests):
    for more in [{}, {"result": {}, "error": {"code": 1, "message": "no"}}, {"error": 7}]:
        with subtests.test(more=more):
            client = await latest_legacy()
            reply = await client.post({"jsonrpc": "2.0", "id": "s1", **more})
            # On a channel a response is never answered, not even an invalid one.
            assert reply.refused(400, -32600) if client.transport.http or not more else reply.accepted
            assert (await client.request("ping")).served


async def test_a_second_answer_to_a_question_is_dropped(latest_legacy):
    client = await latest_legacy()
    exchange = client.begin("tools/call", {"name": "ask_name"})
    question = await exchange.message()
    await client.answer(question["id"], value("first"))
    await client.answer(question["id"], value("second"))
    assert text(await exchange.reply()) == "Hello first"


async def test_a_sampling_result_may_have_several_blocks(connect):
    blocks = [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]
    answer = answers([{"role": "assistant", "content": blocks, "model": "m1"}])
    assert text(await (await connect()).ask_tool("ask_model", {}, answer)) == "hello by m1"


@contract
async def test_roots_are_requested(connect):
    roots = [{"uri": "file:///a", "name": "A"}, {"uri": "file:///b"}]
    assert text(await (await connect()).ask_tool("ask_roots", {}, answers([{"roots": roots}]))) == "file:///a file:///b"


async def test_url_elicitation_is_sent_where_the_revision_has_it(connect, revision):
    asked = []

    def answer(method, params):
        asked.append(params)
        return {"action": "accept"}

    reply = await (await connect()).ask_tool("ask_link", {}, answer)
    if revision == "2025-06-18":
        assert asked == []
        assert "error" in reply.message or reply.result["isError"]
        assert "Internal error" not in reply.body.decode()
        return
    assert text(reply) == "accept"
    assert (asked[0]["mode"], asked[0]["url"]) == ("url", "https://example.com/sign-in")
    assert ("elicitationId" in asked[0]) is (revision == "2025-11-25")


async def test_a_prompt_may_ask(modern):
    reply = await modern().converse("prompts/get", {"name": "asking_prompt"}, answers([value("cats")]))
    assert reply.result["messages"][0]["content"]["text"] == "About cats"


async def test_a_resource_may_ask(modern):
    reply = await modern().converse("resources/read", {"uri": "note://asking"}, answers([value("Al")]))
    assert reply.result["contents"][0]["text"] == "For Al"


async def test_a_prompt_may_ask_on_its_stream(latest_legacy):
    reply = await (await latest_legacy()).converse("prompts/get", {"name": "asking_prompt"}, answers([value("cats")]))
    assert reply.result["messages"][0]["content"]["text"] == "About cats"


@contract
async def test_a_client_that_cannot_be_asked_is_not_asked(connect, revision, subtests):
    for capabilities in [{}, {"sampling": {}}, {"elicitation": {"url": {}}}]:
        with subtests.test(capabilities=capabilities):
            reply = await (await connect(capabilities=capabilities)).tool("ask_name")
            if revision == "2026-07-28":
                assert reply.refused(400, -32021)
            else:
                assert len(reply.messages) == 1
                assert "error" in reply.message or reply.result["isError"]


async def test_handlers_can_adapt_to_missing_client_capabilities(connect):
    reply = await (await connect(capabilities={"elicitation": {}})).tool("whoami")
    assert '"form":true' in text(reply)


async def test_a_question_on_a_stream_is_answered_in_a_separate_request(latest_legacy):
    client = await latest_legacy()
    exchange = client.begin("tools/call", {"name": "ask_name"})
    assert await exchange.speaks()
    question = await exchange.message()
    assert question["method"] == "elicitation/create"
    await client.answer(question["id"], value("Al"))
    assert text(await exchange.reply()) == "Hello Al"


async def test_an_answer_from_another_session_is_ignored(latest_legacy):
    client, other = await latest_legacy(token="alice"), await latest_legacy(token="bob")
    exchange = client.begin("tools/call", {"name": "ask_name"})
    question = await exchange.message()
    await other.answer(question["id"], value("Eve"))
    await client.answer(question["id"], value("Al"))
    assert text(await exchange.reply()) == "Hello Al"


async def test_ids_of_questions_are_unique_in_a_session(latest_legacy):
    client = await latest_legacy()
    first, second = (client.begin("tools/call", {"name": "ask_name"}) for _ in range(2))
    questions = [await first.message(), await second.message()]
    assert questions[0]["id"] != questions[1]["id"]
    await client.answer(questions[1]["id"], value("B"))
    await client.answer(questions[0]["id"], value("A"))
    assert [text(await first.reply()), text(await second.reply())] == ["Hello A", "Hello B"]


async def test_a_client_that_answers_with_an_error_makes_a_tool_error(latest_legacy):
    client = await latest_legacy()
    exchange = client.begin("tools/call", {"name": "ask_model"})
    question = await exchange.message()
    await client.post({"jsonrpc": "2.0", "id": question["id"], "error": {"code": -1, "message": "User rejected"}})
    assert "User rejected" in raised(await exchange.reply())


async def test_three_invalid_answers_on_a_stream_are_an_error(latest_legacy):
    asked = []
    bad = [accept(city="Oslo", nights=99)] * 5
    reply = await (await latest_legacy()).ask_tool("ask_trip", {}, answers(bad, asked))
    assert len(asked) == 3
    assert raised(reply)


@contract
async def test_a_question_waits_no_longer_than_its_limit(limits, clock, latest_legacy):
    limits(ELICITATION_TIMEOUT=5)
    exchange = (await latest_legacy()).begin("tools/call", {"name": "ask_name"})
    reply = await clock.advance_while(exchange.reply())
    assert "5 seconds" in raised(reply)
    question = reply.messages[0]
    assert {"requestId": question["id"]} == {
        name: value for name, value in reply.notifications("notifications/cancelled")[0].items() if name == "requestId"
    }


async def test_the_end_of_a_session_ends_its_questions(latest_legacy):
    client = await latest_legacy()
    exchange = client.begin("tools/call", {"name": "ask_name"})
    await exchange.message()
    await client.post(method="DELETE", body=b"")
    await exchange.reply()


@contract
async def test_cancelling_a_call_withdraws_its_question(latest_legacy):
    client = await latest_legacy()
    exchange = client.begin("tools/call", {"name": "ask_name"}, id=5)
    await exchange.message()
    await client.notify("notifications/cancelled", {"requestId": 5})
    reply = await exchange.reply()
    assert "id" not in reply.message or reply.message["id"] != 5


async def test_logs_around_a_question_are_sent_once(connect, revision):
    client = await connect()
    logged = []
    params = {"name": "log_around", "arguments": {}}
    if revision == "2026-07-28":
        level = {"io.modelcontextprotocol/logLevel": "info"}
        first = await client.request("tools/call", params, meta=level)
        key = next(iter(first.result["inputRequests"]))
        retry = {**params, "inputResponses": {key: value(True)}, "requestState": first.result["requestState"]}
        second = await client.request("tools/call", retry, meta=level)
        replies = [first, second]
    else:
        replies = [await client.converse("tools/call", params, answers([value(True)]))]
    for reply in replies:
        logged += [params["data"] for params in reply.notifications("notifications/message")]
    assert logged == ["before", "after"]


async def test_the_user_s_answer_to_the_same_question_in_a_loop_is_not_used_twice(connect):
    asked = []
    script = [value(True), value("Oslo"), value(True), value("Rome"), value(False) | {"action": "cancel"}]
    await (await connect()).ask_tool("ask_loop", {}, answers(script, asked))
    assert asked == ["Another stop?", "Which?", "Another stop?", "Which?", "Another stop?"]
