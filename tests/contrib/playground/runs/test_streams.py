"""Runs of the playground that the browser's script reads: events, live questions, revisions, and cancellation."""

import asyncio
import html
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from django.test import AsyncClient, Client
from django.test.client import FakePayload

from mcp_django import Context, Server, wiring
from mcp_django.contrib.playground.runs import wire
from mcp_django.contrib.playground.runs.streams import MEDIA_TYPE
from mcp_django.protocol.revisions import HANDSHAKE_VERSIONS
from mcp_django.server.primitives.registry import get_registry
from tests.contrib.playground.test_playground import ALIAS, READS, build_url, change, log_in
from tests.support.waiting import eventually, wait_until

__all__ = ["change"]
pytestmark = pytest.mark.django_db(transaction=True)
JSONObject = dict[str, Any]


@pytest.fixture
def server(change: Callable[..., None]) -> Iterator[Server]:
    server, registry = wiring.get_server(ALIAS), get_registry(ALIAS)

    @server.tool(annotations=READS)
    async def ask(ctx: Context) -> str:
        await ctx.report_progress(1, 2, "half")
        first = await ctx.elicit("How many?", int)
        return f"{first.action} {first.data}"

    @server.tool(annotations=READS)
    async def think(ctx: Context) -> str:
        return str(await ctx.sample("Hm?"))

    yield server
    for tool in list(registry.tools):
        registry.remove("tool", tool.name)


class Waiting:
    """A tool that waits until it is cancelled."""

    def __init__(self) -> None:
        self.has_started = self.is_cancelled = False


@pytest.fixture
def waiting(server: Server) -> Waiting:
    waiting = Waiting()

    @server.tool(annotations=READS)
    async def wait() -> str:
        waiting.has_started = True
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            waiting.is_cancelled = True
            raise
        return "never"

    return waiting


def to_async(browser: Client) -> AsyncClient:
    """Return a client of the same user that sends ASGI requests."""
    client = AsyncClient()
    client.cookies = browser.cookies
    return client


def read_fields(page: str) -> dict[str, str]:
    """Return the hidden fields of a form, but for the token against forgery."""
    found = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page)
    return {name: html.unescape(value) for name, value in found if name != "csrfmiddlewaretoken"}


class LiveRun:
    """A run whose events are read one by one."""

    def __init__(self, browser: AsyncClient, url: str) -> None:
        self._browser = browser
        self._url = url
        self.events: list[JSONObject] = []

    async def start(self, **fields: str) -> None:
        answer = await self._browser.post(self._url, {"act": "send", **fields}, headers={"Accept": MEDIA_TYPE})
        assert answer["Content-Type"] == MEDIA_TYPE
        self.response = answer
        self._lines = self._read(answer)

    async def _read(self, answer: Any) -> AsyncIterator[JSONObject]:
        rest = b""
        async for part in answer:
            *lines, rest = (rest + part).split(b"\n")
            for line in lines:
                if line.strip():
                    event = json.loads(line)
                    self.events.append(event)
                    yield event

    async def wait_for(self, kind: str) -> JSONObject:
        async for event in self._lines:
            if event["kind"] == kind:
                return event
        raise AssertionError(self.events)

    async def reply(self, question: JSONObject, **typed: str) -> JSONObject:
        (token,) = re.findall(r'name="reply" value="([^"]*)"', question["html"])
        fields = {f"question-1-{name.replace('__', '-')}": text for name, text in typed.items()}
        answer = await self._browser.post(self._url, {"act": "reply", "reply": html.unescape(token), **fields})
        return {"status": answer.status_code, **json.loads(answer.content)}

    @property
    def wire(self) -> list[tuple[bool, JSONObject]]:
        return [(event["sent"], json.loads(event["text"])) for event in self.events if event["kind"] == "message"]


@pytest.fixture
def run(server: Server) -> Callable[[str], LiveRun]:
    browser = to_async(log_in("use_playground"))
    return lambda tool: LiveRun(browser, build_url(tool))


async def test_questions_of_a_running_call_are_answered_in_the_handshake_era(run: Callable[[str], LiveRun]) -> None:
    live = run("ask")
    await live.start(revision=HANDSHAKE_VERSIONS[-1])
    question = await live.wait_for("question")
    assert "How many?" in question["html"]
    wrong = await live.reply(question, decision="accept", argument__value="many")
    assert "errorlist" in wrong["html"]
    sent = await live.reply(question, decision="accept", argument__value="3")
    assert json.loads(sent["text"])["result"] == {"action": "accept", "content": {"value": 3}}
    end = await live.wait_for("end")
    assert "accept 3" in end["html"]
    assert "id=&quot;answer&quot;" not in end["html"]
    assert (await live.reply(question, decision="decline"))["status"] == 410
    forged = {"html": question["html"].replace('name="reply" value="A', 'name="reply" value="B')}
    assert (await live.reply(forged, decision="decline"))["status"] == 400


async def test_a_refusal_of_the_model_is_an_error_in_the_handshake_era(run: Callable[[str], LiveRun]) -> None:
    live = run("think")
    await live.start(revision=HANDSHAKE_VERSIONS[0])
    sent = await live.reply(await live.wait_for("question"), decision="decline")
    assert json.loads(sent["text"])["error"]["code"] == -1
    assert "The user refused the request" in (await live.wait_for("end"))["html"]


async def test_a_refusal_of_the_model_ends_the_run_in_the_stateless_era(run: Callable[[str], LiveRun]) -> None:
    live = run("think")
    await live.start()
    fields = read_fields((await live.wait_for("end"))["html"])
    sent = len(live.wire)
    await live.start(**fields, **{"act": "answer", "question-1-decision": "decline"})
    assert "You refused" in (await live.wait_for("end"))["html"]
    assert len(live.wire) == sent


async def test_a_question_is_withdrawn_when_its_call_no_longer_waits(
    run: Callable[[str], LiveRun], settings: Any
) -> None:
    settings.MCP = settings.MCP | {"LIMITS": {"ELICITATION_TIMEOUT": 0.05}}
    live = run("ask")
    await live.start(revision=HANDSHAKE_VERSIONS[-1])
    question = await live.wait_for("question")
    end = await live.wait_for("end")
    assert "The client did not answer within" in end["html"]
    assert [event["withdrawn"] for event in live.events if "withdrawn" in event] == [question["id"]]


async def test_many_notifications_are_not_listed_and_still_move_the_bar(
    run: Callable[[str], LiveRun], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "MAX_LISTED_MESSAGES", 3)

    @server.tool(annotations=READS)
    async def count(ctx: Context) -> str:
        for number in range(5):
            await ctx.report_progress(number + 1)
        return "done"

    live = run("count")
    await live.start()
    assert "done" in (await live.wait_for("end"))["html"]
    assert [event["progress"]["progress"] for event in live.events if "progress" in event] == [1, 2, 3, 4, 5]
    assert len(live.wire) == 4  # the request, two notifications, the answer


async def test_rounds_are_streamed_in_the_stateless_era(run: Callable[[str], LiveRun]) -> None:
    live = run("ask")
    await live.start()
    end = await live.wait_for("end")
    assert [event.get("progress") for event in live.events][1] == {"progress": 1, "total": 2, "message": "half"}
    fields = read_fields(end["html"])
    assert "history" not in fields  # The script keeps the messages.
    await live.start(**fields, **{"act": "answer", "question-1-decision": "accept", "question-1-argument-value": "x"})
    end = await live.wait_for("end")
    assert "errorlist" in end["html"]
    await live.start(**fields, **{"act": "answer", "question-1-decision": "accept", "question-1-argument-value": "7"})
    end = await live.wait_for("end")
    assert "accept 7" in end["html"]
    assert {event["round"] for event in live.events if event["kind"] == "message"} == {1, 2}


@pytest.mark.parametrize("version", HANDSHAKE_VERSIONS)
async def test_the_messages_of_the_handshake_era_are_those_of_a_real_connection(
    run: Callable[[str], LiveRun], version: str
) -> None:
    live = run("ask")
    await live.start(revision=version)
    answer = None
    async for event in live._lines:
        if event["kind"] == "question":
            answer = json.loads((await live.reply(event, decision="accept", argument__value="3"))["text"])
    assert [message.get("method") for is_sent, message in live.wire if is_sent] == [
        "initialize",
        "notifications/initialized",
        "logging/setLevel",
        "tools/call",
    ]
    received = [message for is_sent, message in live.wire if not is_sent]
    sent = [message for is_sent, message in live.wire if is_sent]
    assert without_ids(await Endpoint(version).exchange(sent, answer)) == without_ids(received)


class Endpoint:
    """The endpoint over HTTP, for a client of the handshake era."""

    def __init__(self, version: str) -> None:
        self._client = AsyncClient()
        self._headers = {
            "host": "localhost",
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
        }
        self._version = version

    async def exchange(self, messages: list[JSONObject], answer: JSONObject | None) -> list[JSONObject]:
        """Send messages, and the answer to the one question. Return the messages of the server."""
        received = []
        for message in messages:
            response = await self._post(message)
            if "Mcp-Session-Id" in response:
                self._headers |= {"mcp-session-id": response["Mcp-Session-Id"], "mcp-protocol-version": self._version}
            async for found in self._read(response):
                received.append(found)
                if "method" in found and "id" in found and answer is not None:
                    await self._post({**answer, "id": found["id"]})
        return received

    async def _post(self, message: JSONObject) -> Any:
        body = json.dumps(message)
        headers = [(name.encode(), value.encode()) for name, value in self._headers.items()]
        # `post` names the host itself, and requests without a token have to name this machine.
        return await self._client.request(
            method="POST", path="/played/mcp", query_string="", headers=headers, _body_file=FakePayload(body)
        )

    async def _read(self, response: Any) -> AsyncIterator[JSONObject]:
        if not response.streaming:
            if response.content:
                yield json.loads(response.content)
            return
        async for part in response:
            for line in part.split(b"\n"):
                if line.startswith(b"data:") and line[5:].strip():
                    yield json.loads(line[5:])


def without_ids(messages: list[JSONObject]) -> list[JSONObject]:
    """Leave out the ids of the server's requests, which are random."""
    return [{**each, "id": "?"} if "method" in each and "id" in each else each for each in messages]


async def test_closing_the_stream_cancels_the_call_under_asgi(run: Callable[[str], LiveRun], waiting: Waiting) -> None:
    live = run("wait")
    await live.start()
    await live.wait_for("message")
    reading = asyncio.ensure_future(anext(live._lines, None))
    await eventually(lambda: waiting.has_started)
    live.response.close()
    await eventually(lambda: waiting.is_cancelled)
    reading.cancel()


def test_closing_the_stream_cancels_the_call_under_wsgi(server: Server, waiting: Waiting) -> None:
    browser = log_in("use_playground")
    response = browser.post(build_url("wait"), {"act": "send"}, headers={"Accept": MEDIA_TYPE})
    lines = iter(response)
    assert json.loads(next(lines))["title"] == "tools/call"
    assert next(lines) == b"\n"  # The server fails to write this line if the browser has gone.
    wait_until(lambda: waiting.has_started)
    response.close()
    wait_until(lambda: waiting.is_cancelled)


def test_a_run_is_streamed_under_wsgi_without_questions_during_the_call(server: Server) -> None:
    browser = log_in("use_playground")
    fields = {"act": "send", "revision": HANDSHAKE_VERSIONS[-1]}
    response = browser.post(build_url("ask"), fields, headers={"Accept": MEDIA_TYPE})
    events = [json.loads(line) for line in b"".join(response).split(b"\n") if line]
    assert json.loads(events[0]["text"])["params"]["capabilities"] == {}
    assert events[-1]["kind"] == "end"
    assert "does not support" in events[-1]["html"]
