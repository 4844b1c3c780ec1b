"""The playground without a browser: runs that are cancelled by leaving, under WSGI."""

import html
import json
import re
from collections.abc import Iterator
from http.client import HTTPResponse
from http.cookiejar import CookieJar
from typing import Any
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, Request, build_opener

import pytest

from mcp_django.contrib.playground.runs.streams import MEDIA_TYPE
from tests.servers.harness import Server, serve
from tests.support.waiting import WAIT_SECONDS

JSONObject = dict[str, Any]
SITE = "tests.servers.site.room_settings"


class Player:
    """A browser with the playground, whose script reads the events of a run. It keeps its cookies."""

    def __init__(self, server: Server) -> None:
        self._page = f"http://127.0.0.1:{server.port}/admin/mcp_playground/playground/"
        self._opener = build_opener(HTTPCookieProcessor(CookieJar()))

    def run(self, tool: str, **fields: str) -> HTTPResponse:
        url = f"{self._page}?name={tool}"
        with self._opener.open(url, timeout=WAIT_SECONDS) as page:
            token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page.read().decode())
        assert token is not None
        data = urlencode({"csrfmiddlewaretoken": token[1], **fields}).encode()
        response: HTTPResponse = self._opener.open(Request(url, data, {"Accept": MEDIA_TYPE}), timeout=WAIT_SECONDS)
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


@pytest.mark.parametrize("kind", ["gunicorn-sync", "gunicorn-gthread"])
def test_a_disconnect_of_the_browser_cancels_its_call(kind: str) -> None:
    with serve(kind, site=SITE) as server:
        response = Player(server).start("stream", "left")
        assert wait_for(read_events(response), "message")["title"] == "tools/call"
        server.event("left", "started")
        response.close()
        server.event("left", "cancelled")
        server.terminate()
