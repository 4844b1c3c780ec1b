"""The composed project with a remote server and an API document from npm.

The remote server runs on TypeScript's SDK, and the document describes a real API.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.clients.peer_process import Failed
from tests.clients.peers import Calls, Peer, Target
from tests.clients.places import Place
from tests.composed import journey
from tests.composed.harness import Site, composed
from tests.conformance.npm import installed_package

EVERYTHING = "@modelcontextprotocol/server-everything@2026.8.31"
"""A server with all features of the protocol, on the official TypeScript SDK."""
FIGMA = "@figma/rest-api-spec@0.43.0"
"""The OpenAPI document of Figma's API, as Figma publishes it (MIT)."""


def typescript_remote(port: int) -> list[str]:
    """Return the command that starts the remote at a port."""
    home, node = installed_package("everything", EVERYTHING)
    script = home / "node_modules" / EVERYTHING.rpartition("@")[0] / "dist" / "index.js"
    return ["/usr/bin/env", f"PORT={port}", node, str(script), "streamableHttp"]


def real_document() -> Path:
    """Return the path of the OpenAPI document."""
    home, _ = installed_package("figma", FIGMA)
    return home / "node_modules" / FIGMA.rpartition("@")[0] / "openapi" / "openapi.yaml"


def _step(site: Site, step: journey.Step, way: str, target: Target, calls: Calls) -> str:
    try:
        asyncio.run(step(site))
    except (AssertionError, TimeoutError) as problem:
        raise Failed(f"{type(problem).__name__}: {problem}") from problem
    return "it holds"


@contextmanager
def composed_project() -> Iterator[Place]:
    """Run the project. The steps of its journey take the place of the clients."""
    with composed(remote=typescript_remote, document=real_document()) as site:
        steps = tuple(
            Peer(step.__name__.replace("_", " "), ("http",), partial(_step, site, step)) for step in journey.JOURNEY
        )
        yield Place("composed", {"http": site.url}, steps)
