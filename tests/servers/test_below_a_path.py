"""A project below a path of the server: each server passes it in its own way, to the ASGI application and the view."""

import pytest

from tests.servers.client import STATELESS, Client
from tests.servers.harness import DOORS, serve

HOW = {
    # uvicorn adds the path to the requested one, the others expect it there already.
    "uvicorn": ("--root-path", ""),
    "hypercorn": ("--root-path", "/app"),
    "granian": ("--url-path-prefix", "/app"),
    "daphne": ("--root-path", "/app"),
}
SETTINGS = {"MIDDLEWARE": ["django.middleware.locale.LocaleMiddleware"], "LANGUAGE_CODE": "en"}


@pytest.mark.parametrize("kind", HOW)
def test_asgi_and_the_view_have_their_path_and_language_below_a_prefix(kind: str) -> None:
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
