"""Redirect requests for clients' documents to a server of the tests.

The name of a host resolves to a public address, because the fetcher requires one, and a connection to that address goes
to a port of this machine. Everything else is the fetcher's own code: the check of the address, TLS with the name and
the certificate, the Host header, and the limits of the response.
"""

import json
import os
from collections.abc import Iterable, Sequence
from typing import Any

import httpcore
import httpx

from mcp_django import http_client

ADDRESS = "93.184.215.14"
INSIDE = "inside.example"
"""A host name that resolves to an address of this machine."""


class _Redirected(httpcore.AsyncNetworkBackend):
    """A network backend that connects to this machine."""

    def __init__(self, backend: httpcore.AsyncNetworkBackend, port: int) -> None:
        self._backend, self._port = backend, port

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        assert (host, port) == (ADDRESS, 443), (host, port)
        return await self._backend.connect_tcp("127.0.0.1", self._port, timeout=timeout)

    async def sleep(self, seconds: float) -> None:
        await self._backend.sleep(seconds)


def redirect_to_loopback() -> None:
    """Replace the resolver and the connections, if the environment is set."""
    if "SITE_DOCUMENTS" not in os.environ:
        return
    said = json.loads(os.environ["SITE_DOCUMENTS"])
    context = httpx.create_ssl_context(trust_env=False)
    context.load_verify_locations(said["authority"])

    async def resolve(host: str, port: int) -> Sequence[str]:
        found = {said["host"]: ADDRESS, INSIDE: "127.0.0.1"}.get(host)
        return [found] if found else []

    def transport() -> httpx.AsyncBaseTransport:
        made = httpx.AsyncHTTPTransport(verify=context, trust_env=False)
        made._pool._network_backend = _Redirected(made._pool._network_backend, said["port"])
        return made

    http_client._resolve_host = resolve
    http_client._create_transport = transport
