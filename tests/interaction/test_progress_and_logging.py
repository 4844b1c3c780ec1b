"""Progress and log messages (basic/utilities/progress, server/utilities/logging)."""

import logging

import pytest

from mcp_django.logs import ClientHandler
from tests.interaction.clients import META
from tests.interaction.transports import contract

LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]


async def read_log_levels(client, **how):
    reply = await client.tool("chatter", **how)
    return [params["level"] for params in reply.notifications("notifications/message")]


@contract
async def test_progress_is_sent_before_the_response_to_a_client_with_a_token(connect, revision):
    reply = await (await connect()).tool("steps", {"count": 3}, meta={"progressToken": "p1"})
    sent = reply.notifications("notifications/progress")
    assert [(t["progressToken"], t["progress"], t["total"]) for t in sent] == [("p1", 1, 3), ("p1", 2, 3), ("p1", 3, 3)]
    messages = [t.get("message") for t in sent]
    assert messages == ([None] * 3 if revision == "2024-11-05" else ["step 1", "step 2", "step 3"])
    assert reply.may_stream
    assert [message.get("method") for message in reply.messages] == [*["notifications/progress"] * 3, None]
    assert reply.result["content"][0]["text"] == "done"


async def test_a_progress_token_is_echoed_with_its_type(modern, subtests):
    for token in [0, "", 7, "text"]:
        with subtests.test(token=token):
            sent = (await modern().tool("steps", {"count": 1}, meta={"progressToken": token})).notifications(
                "notifications/progress"
            )
            assert [(t["progressToken"], type(t["progressToken"])) for t in sent] == [(token, type(token))]


async def test_a_progress_token_of_another_type_is_invalid_params(modern, subtests):
    for token in [[], {}, True, 1.5]:
        with subtests.test(token=token):
            reply = await modern().tool("steps", {"count": 1}, meta={"progressToken": token})
            assert reply.refused(400, -32602)


async def test_without_a_token_there_is_no_progress_and_no_stream(either):
    reply = await (await either()).tool("steps", {"count": 3})
    assert not reply.is_stream
    assert len(reply.messages) == 1


async def test_progress_that_does_not_increase_is_left_out(either):
    reply = await (await either()).tool("backwards", meta={"progressToken": 1})
    assert [t["progress"] for t in reply.notifications("notifications/progress")] == [1, 3, 4]


async def test_a_stateless_client_gets_no_logs_without_a_level(modern):
    assert await read_log_levels(modern()) == []


async def test_a_stateless_client_gets_logs_from_the_level_of_its_request(modern, subtests):
    for level, count in [("debug", 4), ("info", 3), ("warning", 2), ("error", 1), ("alert", 0)]:
        with subtests.test(level=level, count=count):
            found = await read_log_levels(modern(), meta={META + "logLevel": level})
            assert found == ["debug", "info", "warning", "error"][4 - count :]


async def test_a_level_lasts_for_one_stateless_request_only(modern):
    client = modern()
    await read_log_levels(client, meta={META + "logLevel": "debug"})
    assert await read_log_levels(client) == []


async def test_an_unknown_level_is_invalid_params(modern, subtests):
    for level in ["loud", "", 7, "INFO"]:
        with subtests.test(level=level):
            reply = await modern().tool("chatter", meta={META + "logLevel": level})
            assert reply.refused(400, -32602)


async def test_a_log_message_may_name_its_logger_and_carry_any_json(modern):
    reply = await modern().tool("chatter", meta={META + "logLevel": "info"})
    first = reply.notifications("notifications/message")[0]
    assert (first["logger"], first["data"]) == ("chatter", {"what": "an object"})


async def test_a_session_first_gets_logs_from_the_level_of_the_server(legacy):
    assert await read_log_levels(await legacy()) == ["info", "warning", "error"]


@contract
async def test_a_session_sets_its_level(latest_legacy, subtests):
    for level in LEVELS:
        with subtests.test(level=level):
            client = await latest_legacy()
            reply = await client.request("logging/setLevel", {"level": level})
            assert (reply.served, reply.result) == (True, {})
            expected = [
                levels
                for levels in ("debug", "info", "warning", "error")
                if LEVELS.index(levels) >= LEVELS.index(level)
            ]
            assert await read_log_levels(client) == expected


async def test_the_level_of_a_session_is_its_own(latest_legacy):
    quiet, other = await latest_legacy(), await latest_legacy()
    await quiet.request("logging/setLevel", {"level": "emergency"})
    assert await read_log_levels(other) == ["info", "warning", "error"]


async def test_a_session_cannot_set_an_unknown_level(legacy, subtests):
    for params in [{"level": "loud"}, {"level": 7}, {}]:
        with subtests.test(params=params):
            reply = await (await legacy()).request("logging/setLevel", params)
            assert reply.error["code"] == -32602


async def test_setting_the_level_of_a_session_does_not_touch_stateless_requests(latest_legacy, modern):
    await (await latest_legacy()).request("logging/setLevel", {"level": "debug"})
    assert await read_log_levels(modern()) == []


@pytest.fixture
def forwarded():
    """The records of a logger go to the client of their call."""
    logger, handler = logging.getLogger("tests.interaction.shop"), ClientHandler()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


@contract
@pytest.mark.django_db(transaction=True)
def test_log_records_of_a_plain_function_reach_the_client_that_wants_them(transport, connect, forwarded, subtests):
    """On a loop of its own, so that the function has a thread to run in."""

    async def run():
        client = await connect()
        for level, count in [("info", 2), ("warning", 1), ("error", 0)]:
            with subtests.test(level=level):
                if not client.stateless:
                    await client.request("logging/setLevel", {"level": level})
                meta = {META + "logLevel": level} if client.stateless else None
                check(await client.tool("log_records", meta=meta), count)

    def check(reply, count):
        levels = [(sent["level"], sent["data"]) for sent in reply.notifications("notifications/message")]
        assert levels == [("info", "packing, password=[redacted]"), ("warning", "packed")][2 - count :]
        assert reply.status is None or reply.is_stream is bool(count)
        assert reply.result["content"][0]["text"] == "done"

    transport.run(run())
