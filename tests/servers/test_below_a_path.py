"""A project below a path that the server names: each server tells it in its own way, and both doors understand it."""

import pytest

from tests.servers.client import STATELESS, Client
from tests.servers.harness import DOORS, serve

HOW = {
    # uvicorn puts the path in front of what it is asked for, the others expect it there already.
    "uvicorn": ("--root-path", ""),
    "hypercorn": ("--root-path", "/app"),
    "granian": ("--url-path-prefix", "/app"),
    "daphne": ("--root-path", "/app"),
}
SETTINGS = {"MIDDLEWARE": ["django.middleware.locale.LocaleMiddleware"], "LANGUAGE_CODE": "en"}


@pytest.mark.parametrize("kind", HOW)
def test_both_doors_are_found_and_know_where_they_are_and_what_is_spoken(kind: str) -> None:
    option, asked = HOW[kind]
    with serve(kind, options=(option, "/app"), settings=SETTINGS) as server:
        for path in DOORS.values():
            for language, monday in (("de", "Montag"), ("xx", "Monday"), ("fr-CA, fr;q=0.5", "lundi")):
                with Client(server.port, asked + path, STATELESS, {"Accept-Language": language}) as client:
                    answer = client.call("around").answer()
                assert answer.message["result"]["structuredContent"] == {
                    "path": f"/app{path}",
                    "found": "/app/view/mcp",
                    "monday": monday,
                }
        assert not server.complaints()
