"""A TLS server on loopback that serves metadata documents, and a fetcher for which its hosts are on the internet.

The tests replace the resolver, which gives a public address, and below TLS the connection, which goes to this server.
 The name in the certificate, the checks of addresses, the limits: all as in production.
"""

import asyncio
import datetime
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from mcp_django.contrib.oauth.clients.client_metadata import MAX_METADATA_BYTES
from mcp_django.providers.safe_fetch import Fetcher
from tests.support.waiting import WAIT_SECONDS

PUBLIC = "93.184.215.14"
HOST = "client.example"
Answer = Callable[[asyncio.StreamWriter], Any]


def certificate(path: Path, *hosts: str) -> Path:
    """Write a certificate that is its own authority, with its key, and give the path back."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, hosts[0])])
    now = datetime.datetime.now(datetime.UTC)
    cert = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(cert.public_bytes(pem) + secret)
    return path


def response(body: bytes, kind: str = "application/json", status: str = "200 OK", **headers: str) -> bytes:
    """A whole HTTP response."""
    fields = {"content-type": kind, "content-length": str(len(body)), **headers}
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {status}\r\n{lines}\r\n".encode() + body


def document(url: str, **members: Any) -> bytes:
    """A response with a valid document."""
    values = {"client_id": url, "client_name": "A client", "redirect_uris": ["https://client.example/cb"], **members}
    return response(orjson.dumps({name: value for name, value in values.items() if value is not ...}))


class _LoopbackTransport(httpx.AsyncHTTPTransport):
    """A transport that sends each request to the document server."""

    def __init__(self, server: "DocumentServer") -> None:
        super().__init__(verify=server.trusted, trust_env=False)
        self._server = server

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self._server.connected.append(f"{request.url.host}:{request.url.port or 443}")
        request.url = request.url.copy_with(host="127.0.0.1", port=self._server.port)
        response = await super().handle_async_request(request)
        self._server.received.append(response.status_code)
        return response


class DocumentServer:
    """Serves pages by path: bytes of a response, or a coroutine function that writes one."""

    def __init__(self, pem: Path) -> None:
        self.pages: dict[str, bytes | Answer] = {}
        self.asked: list[str] = []
        """Paths, in the order in which they were asked for."""
        self.heads: list[bytes] = []
        self.connected: list[str] = []
        """The addresses with ports that the fetcher connected to."""
        self.received: list[int] = []
        """The statuses of the responses whose heads the fetcher has received."""
        self.addresses: Sequence[str] | Callable[[], Sequence[str]] = [PUBLIC]
        self.resolved: list[str] = []
        self.port = 0
        self._pem = pem
        self.trusted = ssl.create_default_context(cafile=pem)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split(b" ")[1].decode()
            self.heads.append(head)
            self.asked.append(path)
            answer = self.pages.get(path, response(b"", status="404 Not Found"))
            if isinstance(answer, bytes):
                writer.write(answer)
                await writer.drain()
            else:
                await answer(writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """Resolve each host to `addresses`."""
        self.resolved.append(host)
        return self.addresses() if callable(self.addresses) else self.addresses

    def fetcher(self, hosts: Sequence[str] | None = None) -> Fetcher:
        """Like documents.make_fetcher, with the time that the machine needs."""
        return Fetcher(
            allowed_hosts=hosts,
            timeout=WAIT_SECONDS,
            max_size=MAX_METADATA_BYTES,
            resolve=self.resolve,
            transport=lambda: _LoopbackTransport(self),
        )

    @contextmanager
    def running(self) -> Iterator["DocumentServer"]:
        """Serve from a thread of its own."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self._pem)
        started, loop = threading.Event(), asyncio.new_event_loop()

        async def serve() -> None:
            server = await asyncio.start_server(self.handle, "127.0.0.1", 0, ssl=context)
            self.port = server.sockets[0].getsockname()[1]
            self._over = asyncio.Event()
            started.set()
            async with server:
                await self._over.wait()
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()

        thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), daemon=True)
        thread.start()
        assert started.wait(WAIT_SECONDS)
        try:
            yield self
        finally:
            loop.call_soon_threadsafe(self._over.set)
            thread.join(WAIT_SECONDS)
            loop.close()


def json_page(members: Mapping[str, Any], **headers: str) -> bytes:
    """A response with any JSON object."""
    return response(orjson.dumps(members), **headers)
