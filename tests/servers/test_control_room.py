"""The control room of one process, and the calls of another."""

import contextlib
import re
import signal
from collections.abc import Callable
from http.cookiejar import CookieJar
from typing import Any
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, OpenerDirector, build_opener

import pytest

from mcp_django.contrib.control_room.recording.process_reports import CANCELLED_MESSAGE
from tests.servers.client import STATELESS, Client
from tests.servers.databases import new_postgres, new_sqlite
from tests.servers.harness import Server, serve
from tests.support.waiting import WAIT_SECONDS, wait_until

SITE = "tests.servers.site.room_settings"
DATABASES = (
    pytest.param(new_sqlite, id="sqlite"),
    pytest.param(new_postgres, id="postgres", marks=pytest.mark.postgres),
)


class Visitor:
    """A browser without scripts, which keeps its cookies."""

    def __init__(self, server: Server) -> None:
        self._site = f"http://127.0.0.1:{server.port}"
        self._opener: OpenerDirector = build_opener(HTTPCookieProcessor(CookieJar()))

    def open(self, path: str, form: dict[str, str] | None = None) -> str:
        data = None if form is None else urlencode(form).encode()
        with self._opener.open(f"{self._site}/admin/{path}", data, WAIT_SECONDS) as answer:
            return str(answer.read().decode())

    def open_room(self, path: str = "running/", form: dict[str, str] | None = None) -> str:
        return self.open(f"mcp_control_room/controlroom/{path}", form)


@pytest.mark.parametrize("new_database", DATABASES)
def test_calls_of_one_process_on_the_page_of_another(new_database: Callable[[str], Any]) -> None:
    with contextlib.ExitStack() as stack:
        database = stack.enter_context(new_database(SITE))
        one, other = (stack.enter_context(serve("uvicorn", database=database, site=SITE)) for _ in range(2))
        visitor = Visitor(other)

        with Client(one.port, "/mcp", STATELESS) as client:
            request = client.call("wait", {"tag": "cancelled"})
            wait_until(lambda: "cancel-" in visitor.open_room())
            page = visitor.open_room("")
            token, key = (re.search(rf'name="{name}" value="(\w+)"', page) for name in ("csrfmiddlewaretoken", "key"))
            assert token is not None
            assert key is not None
            page = visitor.open_room("cancel/", {"csrfmiddlewaretoken": token[1], "key": key[1]})
            assert "will be cancelled" in page
            one.event("cancelled", "cancelled")
            assert request.answer().message["error"]["message"] == CANCELLED_MESSAGE
            wait_until(lambda: "cancel-" not in visitor.open_room())
            assert "tools/call wait" in visitor.open("")  # the recent actions
            wait_until(lambda: ">cancelled<" in visitor.open("mcp_control_room/calllogentry/"))

            client.call("wait", {"tag": "lost"})
            wait_until(lambda: "cancel-" in visitor.open_room())
            one.terminate(signal.SIGKILL)
            wait_until(lambda: "has been silent" in visitor.open_room())
            assert "cancel-" not in visitor.open_room()
        other.terminate()
