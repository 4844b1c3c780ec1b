"""Servers of the protected site, and the site with the documents of clients.

One server of each kind runs for all tests.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest

from tests.clients.oauth.connection import MODES
from tests.clients.oauth.tls import Authority, Documents, served
from tests.servers.databases import new_postgres, new_sqlite
from tests.servers.harness import Server, serve

SITE = "tests.clients.oauth.site.settings"
HOST = "client.example"
"""The host of the documents of clients, which the servers find on this machine."""
VENDORS = {"uvicorn": "sqlite", "daphne": "postgresql", "gunicorn-gthread": "sqlite"}
"""The database that each server works on."""
PAIRS = dict(zip(("uvicorn", "daphne"), MODES, strict=True))
"""The era in which each ASGI server is used."""


class Site(NamedTuple):
    """The protected site on one server."""

    server: Server
    origin: str
    path: str

    @property
    def url(self) -> str:
        """Return the URL of the endpoint."""
        return self.origin + self.path


class Sites:
    """The protected site on each kind of server, started when a test needs it first."""

    def __init__(self, stack: ExitStack, environ: dict[str, str]) -> None:
        self._stack, self._environ = stack, environ
        self._running: dict[str, Site] = {}

    def get(self, kind: str) -> Site:
        """Return the site on a kind of server."""
        if kind not in self._running:
            postgres = VENDORS[kind] == "postgresql"
            database = self._stack.enter_context(new_postgres(SITE) if postgres else new_sqlite(SITE))
            server = self._stack.enter_context(serve(kind, database=database, environ=self._environ, site=SITE))
            self._running[kind] = Site(server, f"http://127.0.0.1:{server.port}", "/mcp")
        return self._running[kind]


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Create the certificate authority that the servers trust."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def documents(authority: Authority) -> Iterator[Documents]:
    """Run the site with the documents of clients."""
    with served(authority.context(HOST)) as found:
        yield found


@pytest.fixture(scope="session")
def sites(authority: Authority, documents: Documents) -> Iterator[Sites]:
    """Yield the servers of this run."""
    where = {"host": HOST, "port": documents.port, "authority": str(authority.bundle)}
    environ = {"SITE_DOCUMENTS": json.dumps(where)}
    with ExitStack() as stack:
        yield Sites(stack, environ)


@pytest.fixture(params=PAIRS)
def site(request: pytest.FixtureRequest, sites: Sites) -> Iterator[Site]:
    """Yield the site on each of the two ASGI servers that differ most.

    The log of the server may hold no complaint.
    """
    found = sites.get(request.param)
    yield found
    found.server.settle()


@pytest.fixture
def mode(site: Site) -> str:
    """Return the era of the server. Each server has another one, so both are tested."""
    return PAIRS[site.server.kind]
