"""HTTP+SSE where the POSTs come to another worker than the one with the stream."""

from concurrent.futures import ThreadPoolExecutor

from tests.servers.databases import count
from tests.servers.legacy_client import LegacyClient
from tests.support.waiting import wait_until
from tests.workers.harness import Workers
from tests.workers.unreliable_layer import DeliveryFaults

PATH = "/mcp/sse"
PING = {"jsonrpc": "2.0", "id": 0, "method": "ping"}


def apart(workers: Workers) -> LegacyClient:
    """A client whose stream is at one worker and whose POSTs go to another."""
    here, there = workers.ports
    return LegacyClient(here, PATH, posts_to=there)


def post_status(client: LegacyClient, port: int | None = None) -> int:
    """POST a ping. Returns the status."""
    return client.post(PING, port=port).status


def calls(client: LegacyClient, many: int, *, at_once: int) -> None:
    """So many calls, each answered once by the worker of the stream."""
    with ThreadPoolExecutor(at_once) as pool:
        sent = [pool.submit(client.call, "pid") for _ in range(many)]
        answers = [client.message() for _ in range(many)]
        ids = [one.result() for one in sent]
    assert sorted(answer["id"] for answer in answers) == sorted(ids)
    assert len({answer["result"]["structuredContent"]["result"] for answer in answers}) == 1
    # No response comes twice: the next response is that of the last request.
    assert client.request("ping")["result"] == {}


def test_200_calls_through_the_other_worker_are_answered_once_each(pair: Workers) -> None:
    with apart(pair) as client:
        holder = client.tool("pid")
        assert holder == pair.pid(client.port)
        assert holder != pair.pid(client.posts_to)
        calls(client, 200, at_once=8)


def test_without_wakes_they_are_answered_a_little_later(pair: Workers) -> None:
    pair.set_faults(DeliveryFaults(lost=1))
    with apart(pair) as client:
        calls(client, 40, at_once=40)


def test_either_worker_may_take_the_next_message(pair: Workers) -> None:
    here, there = pair.ports
    with apart(pair) as client:
        for number in range(40):
            client.posts_to = (here, there)[number % 2]
            assert client.tool("length", {"text": "x" * number}) == number


def test_a_message_larger_than_any_wake_arrives_whole(pair: Workers) -> None:
    with apart(pair) as client:
        text = "ä" * 500_000
        assert client.tool("length", {"text": text}) == len(text)


def test_a_question_is_answered_through_the_other_worker(pair: Workers) -> None:
    with apart(pair) as client:
        id = client.call("number")
        question = client.message()
        assert question["method"] == "elicitation/create"
        (name,) = question["params"]["requestedSchema"]["properties"]
        result = {"action": "accept", "content": {name: 7}}
        assert client.post({"jsonrpc": "2.0", "id": question["id"], "result": result}).status == 202
        final = client.message()
        assert (final["id"], final["result"]["structuredContent"]["result"]) == (id, 7)


def test_a_call_is_cancelled_through_the_other_worker(pair: Workers) -> None:
    with apart(pair) as client:
        tag = f"cancelled {client.uri}"
        id = client.call("linger", {"tag": tag})
        pair.event(tag, "started")
        client.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})
        pair.event(tag, "cancelled")


def test_posts_are_refused_after_the_worker_of_the_stream_was_killed(own_pair: Workers) -> None:
    holder, other = own_pair.servers
    with apart(own_pair) as client:
        assert client.request("ping")["result"] == {}
        own_pair.stop(holder, kill=True)
        assert post_status(client, other.port) == 404
        with ThreadPoolExecutor(8) as pool:
            assert set(pool.map(lambda _: post_status(client, other.port), range(40))) == {404}


def test_the_stream_ends_before_its_stopped_worker(own_pair: Workers) -> None:
    holder, other = own_pair.servers
    with apart(own_pair) as client:
        own_pair.stop(holder, kill=False)
        assert client.is_over()
        assert post_status(client, other.port) == 404


def test_a_disconnected_client_leaves_no_session_and_no_call(pair: Workers) -> None:
    here, there = pair.ports

    def live_sessions() -> int:
        return count(pair.database, "mcp_django_session", "terminated_at IS NULL")

    def open_channels() -> list[int]:
        probes = [server.probe() for server in pair.servers]
        return [probe["listening"] + probe["in_flight"] for probe in probes]

    # Calls of other tests' sessions may still go on.
    before, open_before = live_sessions(), open_channels()
    with apart(pair) as client:
        tag = f"left {client.uri}"
        client.call("linger", {"tag": tag})
        pair.event(tag, "started")
        client.leave()
        pair.event(tag, "cancelled")
        for port in (there, here):
            wait_until(lambda port=port: post_status(client, port) == 404)
    wait_until(lambda: live_sessions() == before)
    wait_until(lambda: all(now <= then for now, then in zip(open_channels(), open_before, strict=True)), open_channels)


def test_a_session_ended_on_another_worker_ends_its_stream(pair: Workers) -> None:
    with apart(pair) as client:
        pair.run("from mcp_django.models import Session; Session.objects.filter(terminated_at=None).end('by hand')")
        assert client.is_over()
        assert post_status(client) == 404


def test_a_flood_of_posts_for_an_ended_stream_writes_nothing(pair: Workers) -> None:
    with apart(pair) as client:
        client.leave()
        wait_until(lambda: post_status(client) == 404)
        before = count(pair.database, "mcp_django_streamevent", "kind = 'post'")
        assert {post_status(client) for _ in range(20)} == {404}
        assert count(pair.database, "mcp_django_streamevent", "kind = 'post'") == before
