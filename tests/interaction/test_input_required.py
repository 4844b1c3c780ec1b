"""Questions in rounds, in the stateless era (basic/patterns/mrtr)."""

import pytest

from mcp_django.wiring.servers import MAX_STATE_BYTES
from tests.interaction.clients import META, Client, accept
from tests.interaction.transports import contract

BAD_STATE = (400, -32602)


def value(content):
    return accept(value=content)


def text(reply):
    return reply.result["content"][0]["text"]


def every(result, content):
    """The same answer to all questions of a round."""
    return {key: value(content) for key in result["inputRequests"]}


async def ask(client, name, result=None, content=None, arguments=None, **how):
    """The next round, answering everything that `result` asks with `content`."""
    if result is not None:
        how = {"inputResponses": every(result, content), "requestState": result["requestState"], **how}
    return await client.tool(name, arguments, **how)


@contract
async def test_a_round_ends_with_the_question_and_a_state(modern):
    result = (await modern().tool("ask_name")).result
    assert (result["resultType"], list(result["inputRequests"])) == ("input_required", ["user_name"])
    question = result["inputRequests"]["user_name"]
    assert (question["method"], question["params"]["message"]) == ("elicitation/create", "What is your name?")
    assert set(question) == {"method", "params"}
    assert isinstance(result["requestState"], str)
    assert not {"content", "isError", "ttlMs", "cacheScope"} & set(result)
    assert META + "serverInfo" in result["_meta"]


async def test_a_question_before_any_event_is_plain_json(modern):
    reply = await modern().tool("ask_name")
    assert (reply.served, reply.is_stream, len(reply.messages)) == (True, False, 1)


async def test_a_round_may_end_on_a_stream(modern):
    reply = await modern().tool("progress_then_ask", meta={"progressToken": 1})
    assert reply.may_stream
    assert len(reply.notifications("notifications/progress")) == 1
    assert reply.result["resultType"] == "input_required"


async def test_a_response_without_a_state_is_asked_for_again(modern):
    result = (await modern().tool("ask_name", inputResponses={"user_name": value("Al")})).result
    assert list(result["inputRequests"]) == ["user_name"]


async def test_a_response_to_an_unrecorded_request_is_requested_again(modern):
    client = modern()
    first = (await ask(client, "ask_twice")).result
    (key,) = first["inputRequests"]
    second = (await ask(client, "ask_twice", first, 1)).result
    (later,) = second["inputRequests"]

    both = {key: value(1), later: value(2)}
    result = (await client.tool("ask_twice", inputResponses=both, requestState=first["requestState"])).result
    assert list(result["inputRequests"]) == [later]


async def test_responses_to_other_requests_are_ignored(modern):
    client = modern()
    state = (await client.tool("ask_name")).result["requestState"]
    extra = {"user_name": value("Al"), "other": value(1), "third": {"action": "accept", "content": {"foo": "bar"}}}
    assert text(await client.tool("ask_name", inputResponses=extra, requestState=state)) == "Hello Al"


async def test_an_answer_under_a_wrong_key_is_requested_again(modern):
    result = (await modern().tool("ask_name", inputResponses={"wrong": value("Al")})).result
    assert list(result["inputRequests"]) == ["user_name"]


async def test_the_state_changes_each_round_and_keeps_earlier_answers(modern, checkpoints):
    client = modern()
    first = (await ask(client, "ask_twice")).result
    second = (await ask(client, "ask_twice", first, 1)).result
    assert first["requestState"] != second["requestState"]
    assert first["inputRequests"].keys() != second["inputRequests"].keys()
    assert text(await ask(client, "ask_twice", second, 2)) == "1 2"
    assert checkpoints.counts == {"ask_twice": 3, "booking": 1}


async def test_an_omitted_answer_is_asked_for_again(modern, checkpoints):
    client = modern()
    second = (await ask(client, "ask_twice", (await ask(client, "ask_twice")).result, 1)).result
    again = (await client.tool("ask_twice", requestState=second["requestState"])).result
    assert again["inputRequests"] == second["inputRequests"]
    assert text(await ask(client, "ask_twice", again, 2)) == "1 2"
    assert checkpoints.counts["booking"] == 1


async def test_concurrent_questions_are_in_one_round(modern):
    result = (await modern().tool("ask_pair")).result
    assert set(result["inputRequests"]) == {"a", "b"}


async def test_a_partial_answer_is_kept(modern):
    client = modern()
    first = (await client.tool("ask_pair")).result
    half = (await client.tool("ask_pair", inputResponses={"a": value(1)}, requestState=first["requestState"])).result
    assert list(half["inputRequests"]) == ["b"]
    assert text(await ask(client, "ask_pair", half, 2)) == "1 2"


async def test_a_tampered_state_is_refused(modern):
    client = modern()
    first = (await client.tool("ask_name")).result
    state = first["requestState"]
    for changed in (state + "x", state[:-6] + "AAAAAA", state[:40], "A" + state, state[::-1]):
        reply = await client.tool("ask_name", inputResponses=every(first, "Al"), requestState=changed)
        assert reply.refused(*BAD_STATE)


async def test_a_state_with_any_part_of_it_changed_is_refused(modern):
    client = modern()
    state = (await client.tool("ask_name")).result["requestState"]
    # Version, key, salt, nonce, ciphertext and tag.
    for place in (*range(0, len(state), 7), len(state) - 1):
        other = "A" if state[place] != "A" else "B"
        changed = state[:place] + other + state[place + 1 :]
        assert (await client.tool("ask_name", requestState=changed)).refused(*BAD_STATE)


async def test_parts_of_two_states_are_refused(modern):
    client = modern()
    one, two = [(await client.tool("ask_name")).result["requestState"] for _ in range(2)]
    for cut in (8, 30, 50, len(one) - 20):
        assert (await client.tool("ask_name", requestState=one[:cut] + two[cut:])).refused(*BAD_STATE)


async def test_an_overlong_state_is_refused_before_decryption(modern):
    reply = await modern().tool("ask_name", requestState="A" * (MAX_STATE_BYTES + 1))
    assert reply.refused(*BAD_STATE)


async def test_every_refusal_of_a_state_reads_the_same(clock, modern, limits):
    limits(STATE_TTL=60)
    client = modern()
    state = (await client.tool("ask_name")).result["requestState"]
    other = (await client.tool("ask_pair")).result["requestState"]
    foreign = (await modern(token="bob").tool("ask_name")).result["requestState"]
    cursor = (await modern(server="pages").request("tools/list")).result["nextCursor"]
    wrong = [state + "x", other, foreign, cursor, "made up", "", 7, "A" * 100_000]
    errors = {(await client.tool("ask_name", requestState=one)).error["message"] for one in wrong}
    await clock.advance(61)
    errors.add((await client.tool("ask_name", requestState=state)).error["message"])
    assert errors == {"Invalid or expired state"}


@contract
async def test_a_state_belongs_to_its_principal(modern):
    first = (await modern(token="alice").tool("ask_name")).result
    reply = await ask(modern(token="bob"), "ask_name", first, "Eve")
    assert reply.refused(*BAD_STATE)


async def test_a_state_belongs_to_its_server(modern):
    state = (await modern().tool("confirm")).result["requestState"]
    assert (await modern(server="unsessioned").tool("confirm", requestState=state)).refused(*BAD_STATE)


@pytest.mark.transports("asgi", "view", "websocket")
async def test_a_state_belongs_to_the_arguments_of_its_url(transport):
    class Guest(Client):
        tenant = "acme"

        def path(self):
            return f"{self.transport.prefix}/mcp/tenants/{self.tenant}/1"

    acme, other = (Guest(transport, "2026-07-28", server="tenants") for _ in range(2))
    other.tenant = "other"
    state = (await acme.tool("confirm")).result["requestState"]
    assert (await other.tool("confirm", requestState=state)).refused(*BAD_STATE)
    assert (await acme.tool("confirm", requestState=state)).served


async def test_a_state_belongs_to_its_tool(modern):
    client = modern()
    first = (await client.tool("ask_twice")).result
    reply = await client.tool("ask_name", requestState=first["requestState"])
    assert reply.refused(*BAD_STATE)


async def test_a_state_belongs_to_its_arguments(modern):
    client = modern()
    first = (await client.tool("ask_more", {"number": 1})).result
    assert (await ask(client, "ask_more", first, 1, {"number": 2})).refused(*BAD_STATE)
    assert (await ask(client, "ask_more", first, 1, {"number": 1})).served


async def test_a_state_belongs_to_its_kind_of_request(modern):
    client = modern()
    first = (await client.request("prompts/get", {"name": "asking_prompt"})).result
    params = {"uri": "note://asking", "requestState": first["requestState"]}
    assert (await client.request("resources/read", params)).refused(*BAD_STATE)


async def test_a_state_on_a_tool_that_never_asks_is_still_verified(modern):
    reply = await modern().tool("add", {"a": 1, "b": 2}, requestState="made up")
    assert reply.refused(*BAD_STATE)


async def test_a_state_expires(limits, clock, modern):
    limits(STATE_TTL=60)
    client = modern()
    first = (await client.tool("ask_name")).result
    await clock.advance(61)
    reply = await ask(client, "ask_name", first, "Al")
    assert reply.refused(*BAD_STATE)


async def test_a_state_sealed_under_a_fallback_key_is_still_good(modern, settings, restart):
    settings.SECRET_KEY = "the key before"
    first = (await modern().tool("ask_name")).result
    restart()
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "the key now", ["the key before"]
    assert text(await ask(modern(), "ask_name", first, "Al")) == "Hello Al"


async def test_a_state_sealed_under_a_removed_key_is_refused(modern, settings, restart):
    settings.SECRET_KEY = "the key before"
    first = (await modern().tool("ask_name")).result
    restart()
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "the key now", []
    assert (await ask(modern(), "ask_name", first, "Al")).refused(*BAD_STATE)


async def test_answers_of_the_wrong_shape_are_invalid_params(modern, subtests):
    for bad in [7, [], "text", {"user_name": 7}, {"user_name": None}, {"user_name": []}]:
        with subtests.test(bad=bad):
            reply = await modern().tool("ask_name", inputResponses=bad)
            assert reply.refused(400, -32602)


async def test_an_answer_that_does_not_fit_the_question_is_asked_again(modern, subtests):
    for bad in [{"action": "maybe"}, {}, accept(value=7), accept(), {"action": "accept"}]:
        with subtests.test(bad=bad):
            client = modern()
            first = (await client.tool("ask_name")).result
            again = await client.tool("ask_name", inputResponses={"user_name": bad}, requestState=first["requestState"])
            question = again.result["inputRequests"]["user_name"]
            assert question["params"]["message"].startswith("What is your name?")
            # It is still the same question: the next answer counts.
            assert text(await ask(client, "ask_name", again.result, "Al")) == "Hello Al"


async def test_too_many_answers_are_invalid_params(modern):
    many = {f"key-{number}": value(number) for number in range(65)}
    assert (await modern().tool("ask_name", inputResponses=many)).refused(400, -32602)


async def test_a_replayed_state_repeats_the_step(modern, checkpoints):
    """The limit of a sealed record: `run_once` guards against the ordinary retry, not against a replay."""
    client = modern()
    first = (await client.tool("ask_twice")).result
    for _ in range(2):
        await ask(client, "ask_twice", first, 1)
    assert checkpoints.counts["booking"] == 2


async def test_a_failed_once_step_is_not_recorded(modern, checkpoints):
    client = modern()
    first = (await client.tool("once_failing")).result
    assert text(await ask(client, "once_failing", first, True)) == "No funds"
    assert text(await ask(client, "once_failing", first, True)) == "paid"


async def test_a_once_key_used_twice_is_a_bug_of_the_handler(connect, revision):
    reply = await (await connect()).tool("once_twice")
    assert reply.result["isError"] is True
    assert text(reply).startswith("Internal error")


async def test_a_state_that_grows_too_large_is_an_error_for_the_model(modern):
    reply = await modern().tool("once_too_much")
    assert reply.result["isError"] is True


async def test_a_question_that_changes_every_time_comes_to_an_end(modern):
    client, rounds = modern(), 0
    result = (await client.tool("ask_the_time")).result
    while "inputRequests" in result:
        rounds += 1
        result = (await ask(client, "ask_the_time", result, True)).result
    assert result["isError"] is True
    assert rounds == 4


async def test_a_pinned_value_does_not_change(modern):
    client = modern()
    first = (await client.tool("ask_a_pinned_time")).result
    assert text(await ask(client, "ask_a_pinned_time", first, True)) == "True"


async def test_a_conversation_has_an_end(modern):
    client, rounds = modern(), 0
    result = (await client.tool("ask_forever")).result
    while "inputRequests" in result:
        rounds += 1
        assert rounds < 40
        result = (await ask(client, "ask_forever", result, True)).result
    assert (result["isError"], rounds) == (True, 32)


async def test_a_question_whose_exception_is_suppressed_is_still_sent(modern, checkpoints):
    reply = await modern().tool("swallow")
    assert reply.result["resultType"] == "input_required"
    assert checkpoints.counts["swallowed"] == 1


async def test_input_responses_on_a_list_request_are_ignored(modern):
    reply = await modern().request("tools/list", {"inputResponses": {"a": value(1)}, "requestState": "x"})
    assert reply.result["resultType"] == "complete"


async def test_any_of_several_workers_can_go_on(modern, restart):
    first = (await modern().tool("ask_twice")).result
    restart()
    second = (await ask(modern(), "ask_twice", first, 1)).result
    assert "inputRequests" in second


async def test_legacy_clients_cannot_send_input_responses(latest_legacy, checkpoints):
    client = await latest_legacy()
    exchange = client.begin(
        "tools/call", {"name": "ask_name", "arguments": {}, "inputResponses": {"user_name": value("Al")}}
    )
    question = await exchange.message()
    assert question["method"] == "elicitation/create"
    await client.answer(question["id"], {"action": "cancel"})
    assert text(await exchange.reply()) == "cancel"
