"""The playground of two processes: rounds, questions and replies that reach another one, and cancellation."""

import html
import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPResponse
from typing import Any
from urllib.parse import urlencode
from urllib.request import Request

import pytest

from mcp_django.contrib.control_room.playground.runs.streams import MEDIA_TYPE
from mcp_django.protocol.revisions import HANDSHAKE_VERSIONS
from tests.servers.databases import new_sqlite
from tests.servers.harness import serve
from tests.servers.test_control_room import SITE, Visitor
from tests.support.waiting import WAIT_SECONDS

JSONObject = dict[str, Any]


class Player(Visitor):
    """A visitor of the playground, whose script reads the events of a run."""

    def run(self, tool: str, **fields: str) -> HTTPResponse:
        path = f"/admin/mcp_control_room/playground/?name={tool}"
        token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', self.open(path.removeprefix("/admin/")))
        assert token is not None
        data = urlencode({"csrfmiddlewaretoken": token[1], **fields}).encode()
        request = Request(f"{self._site}{path}", data, {"Accept": MEDIA_TYPE})
        response: HTTPResponse = self._opener.open(request, timeout=WAIT_SECONDS)
        return response

    def start(self, tool: str, tag: str, **fields: str) -> HTTPResponse:
        return self.run(tool, **{"act": "send", "confirmed": "on", "argument-tag": tag, **fields})


def read_events(response: HTTPResponse) -> Iterator[JSONObject]:
    for line in response:
        if line.strip():
            yield json.loads(line)


def wait_for(events: Iterator[JSONObject], kind: str) -> JSONObject:
    return next(event for event in events if event["kind"] == kind)


def read_fields(page: str) -> dict[str, str]:
    found = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page)
    return {name: html.unescape(value) for name, value in found if name != "csrfmiddlewaretoken"}


ACCEPTED = {"question-1-decision": "accept", "question-1-argument-value": "true"}


def test_rounds_and_replies_reach_any_process() -> None:
    with ExitStack() as stack:
        database = stack.enter_context(new_sqlite(SITE))
        one, other = (stack.enter_context(serve("uvicorn", database=database, site=SITE)) for _ in range(2))
        here, there = Player(one), Player(other)

        question = wait_for(read_events(here.start("ask", "round")), "end")["html"]
        answered = wait_for(
            read_events(there.run("ask", **{**read_fields(question), **ACCEPTED, "act": "answer"})), "end"
        )
        assert "accept" in answered["html"]
        assert [event["what"] for event in other.events("round")]

        events = read_events(here.start("ask", "live", revision=HANDSHAKE_VERSIONS[-1]))
        question = wait_for(events, "question")["html"]
        reply = there.run("ask", **{**read_fields(question), **ACCEPTED, "act": "reply"})
        assert json.loads(json.load(reply)["text"])["result"]["action"] == "accept"
        assert "accept" in wait_for(events, "end")["html"]
        one.terminate()
        other.terminate()


@pytest.mark.parametrize("kind", ["uvicorn", "gunicorn-sync", "gunicorn-gthread"])
def test_a_browser_that_leaves_cancels_its_call(kind: str) -> None:
    with serve(kind, site=SITE) as server:
        response = Player(server).start("stream", "left")
        assert wait_for(read_events(response), "message")["title"] == "tools/call"
        server.event("left", "started")
        response.close()
        server.event("left", "cancelled")
        server.terminate()
