"""The suite's scenarios for authorization servers, on the protected site: one registers as a client, one presses Allow.

The suite prints the address that a person would open, and waits at a port of its own for the code.
"""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx

from tests.clients.oauth.browser import Browser
from tests.servers.databases import new_sqlite
from tests.servers.harness import serve

SITE = "tests.clients.oauth.site.settings"
LIMIT = 120
"""Seconds for the scenarios under one revision."""


class Protected(NamedTuple):
    """A protected site that is served."""

    issuer: str
    resource: str


@contextmanager
def protected_site() -> Iterator[Protected]:
    """The site on a free port; `tests.clients.oauth` has clients of its own for it."""
    with new_sqlite(SITE) as database, serve("uvicorn", database=database, site=SITE) as server:
        issuer = f"http://127.0.0.1:{server.port}"
        yield Protected(issuer, f"{issuer}/mcp")


def run(suite: list[str], site: Protected, version: str, port: int, results: Path) -> str:
    """Run the scenarios under a revision; return the output of the suite. Its callback listens at the port."""
    callback = f"http://127.0.0.1:{port}/callback"
    metadata = _metadata(site)
    command = [*suite, "authorization", "--url", site.issuer, "--resource", site.resource, "--port", str(port)]
    command += ["--client-id", _registered(metadata["registration_endpoint"], callback)]
    command += ["--spec-version", version, "--output-dir", str(results)]
    output = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                output.append(line)
                if line.startswith(f"{metadata['authorization_endpoint']}?"):
                    _consent(line.strip())
            process.wait(LIMIT)
        finally:
            process.kill()
    return "".join(output)


def _metadata(site: Protected) -> dict[str, str]:
    found = httpx.get(f"{site.issuer}/.well-known/oauth-authorization-server").raise_for_status()
    metadata: dict[str, str] = found.json()
    return metadata


def _registered(endpoint: str, callback: str) -> str:
    wanted = {"client_name": "Conformance", "redirect_uris": [callback], "token_endpoint_auth_method": "none"}
    answer = httpx.post(endpoint, json=wanted).raise_for_status()
    client_id: str = json.loads(answer.text)["client_id"]
    return client_id


def _consent(url: str) -> None:
    """Allow it, and go where that leads."""
    browser = Browser()
    asyncio.run(browser.open(url))
    httpx.get(browser.address)
