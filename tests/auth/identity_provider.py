"""An identity provider on this machine, with keys, a discovery document and introspection."""

import base64
import datetime
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock
from urllib.parse import parse_qs

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from django.test import override_settings
from jwcrypto import jwk, jws

from mcp_django import conf
from mcp_django.auth.external import http, jwks
from mcp_django.conf.issuers import IssuerSettings
from tests.support.waiting import WAIT_SECONDS

AUDIENCE = "https://shop.example/mcp"
REQUEST_SECONDS = jwks.MIN_FETCH_INTERVAL_SECONDS / 2
"""How long a request to the provider may take: less than the time between two fetches of keys, as in production."""
KINDS: dict[str, dict[str, Any]] = {
    "RS256": {"kty": "RSA", "size": 2048},
    "ES256": {"kty": "EC", "crv": "P-256"},
    "ES384": {"kty": "EC", "crv": "P-384"},
    "ES512": {"kty": "EC", "crv": "P-521"},
    "EdDSA": {"kty": "OKP", "crv": "Ed25519"},
}

Answer = tuple[int, dict[str, str], Any]
"""Status, headers, and the body: bytes, an iterator of pieces, or what becomes JSON."""


@cache
def new_key(algorithm: str = "RS256", number: int = 0) -> jwk.JWK:
    """Make a key, once for all tests."""
    kind = KINDS["RS256" if algorithm[:2] in ("RS", "PS") else algorithm]
    return jwk.JWK.generate(**kind, kid=f"{algorithm}-{number}")


def public(key: jwk.JWK, **active_claims: Any) -> dict[str, Any]:
    """The public half, as a set publishes it."""
    return {**key.export_public(as_dict=True), "use": "sig", **active_claims}


def b64(value: Any) -> str:
    """Encode a part of a token."""
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


class DelayedAnswer:
    """An answer that waits in the provider until the test releases it."""

    def __init__(self, answer: Callable[[], Answer]) -> None:
        self.answer = answer
        self.asked, self._released = threading.Event(), threading.Event()

    def __call__(self) -> Answer:
        self.asked.set()
        self._released.wait(WAIT_SECONDS)
        return self.answer()

    def release(self) -> None:
        """Let the provider send the answer."""
        self._released.set()


class Provider:
    """Answers by path, and counts the requests."""

    def __init__(self, origin: str) -> None:
        self.origin = self.issuer = origin
        self.keys: list[Any] = [public(new_key())]
        self.asked: list[str] = []
        self.forms: list[dict[str, str]] = []
        self.credentials: list[str | None] = []
        self.answers: dict[str, Callable[[], Answer]] = {
            "/keys": lambda: (200, {}, {"keys": self.keys}),
            "/.well-known/openid-configuration": lambda: (200, {}, self.document()),
        }
        self.active_claims: dict[str, Any] = {}
        self.delayed: list[DelayedAnswer] = []

    def hold(self, path: str) -> DelayedAnswer:
        """Hold the answer at a path back until the test releases it."""
        delayed = self.answers[path] = DelayedAnswer(self.answers[path])
        self.delayed.append(delayed)
        return delayed

    def document(self) -> dict[str, Any]:
        """The discovery document."""
        return {"issuer": self.issuer, "jwks_uri": f"{self.origin}/keys"}

    def claims(self, **changes: Any) -> dict[str, Any]:
        """Good claims, with changes; `...` leaves one out."""
        now = int(time.time())
        good = {"iss": self.issuer, "sub": "ada", "aud": AUDIENCE, "exp": now + 300, "iat": now, "scope": "a b"}
        return {name: value for name, value in (good | changes).items() if value is not ...}

    def token(self, *, key: Any = None, header: dict[str, Any] | None = None, **claims: Any) -> str:
        """A signed token."""
        key = key or new_key()
        full = {"alg": "RS256", "typ": "at+jwt", "kid": key.get("kid"), **(header or {})}
        full = {name: value for name, value in full.items() if value is not ...}
        signer = jws.JWS(json.dumps(self.claims(**claims)))
        signer.allowed_algs = [full["alg"]]
        signer.add_signature(key, alg=full["alg"], protected=json.dumps(full))
        return str(signer.serialize(compact=True))

    def count(self, path: str = "/keys") -> int:
        """How often a path was asked for."""
        return self.asked.count(path)

    def introspects(self, **active_claims: Any) -> None:
        """Answer introspection of every token with these claims."""
        self.active_claims = {"active": True, **self.claims(**active_claims)}
        self.answers["/introspect"] = lambda: (200, {}, self.active_claims)


class _Handler(BaseHTTPRequestHandler):
    provider: Provider

    def do_GET(self) -> None:
        provider = self.provider
        provider.asked.append(self.path)
        length = int(self.headers.get("content-length", 0))
        form = parse_qs(self.rfile.read(length).decode())
        if self.command == "POST":
            provider.forms.append({name: values[0] for name, values in form.items()})
            provider.credentials.append(self.headers.get("authorization"))
        status, headers, body = provider.answers.get(self.path, lambda: (404, {}, {}))()
        if not isinstance(body, bytes | Iterator):
            body = json.dumps(body).encode()
        self.send_response(status)
        if isinstance(body, bytes):
            self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        try:
            for piece in [body] if isinstance(body, bytes) else body:
                self.wfile.write(piece)
        except (BrokenPipeError, ConnectionResetError, ssl.SSLError):
            pass  # the client has had enough

    do_POST = do_GET  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that does not trust the certificate, or went away."""


@contextmanager
def serving(tls: tuple[Path, Path] | None = None) -> Iterator[Provider]:
    """Serve a provider; with a certificate and its key by https, as localhost.

    Requests to it have the time that the machine needs.
    """
    server = _Server(("127.0.0.1", 0), _Handler)
    provider = Provider(f"http://127.0.0.1:{server.server_port}")
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*tls)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        provider.origin = provider.issuer = f"https://localhost:{server.server_port}"
    server.RequestHandlerClass = type("Handler", (_Handler,), {"provider": provider})
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        with (
            mock.patch.object(http, "REQUEST_TIMEOUT_SECONDS", REQUEST_SECONDS),
            mock.patch.object(jwks, "REQUEST_TIMEOUT_SECONDS", REQUEST_SECONDS),
        ):
            yield provider
    finally:
        for delayed in provider.delayed:
            delayed.release()
        server.shutdown()
        thread.join()
        server.server_close()


def certificate(directory: Path) -> tuple[Path, Path]:
    """Make a certificate for localhost that vouches for itself, and its key, as files."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    paths = SimpleNamespace(certificate=directory / "certificate.pem", key=directory / "key.pem")
    paths.certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    paths.key.write_bytes(pem)
    return paths.certificate, paths.key


def read_issuers(*entries: dict[str, Any]) -> tuple[IssuerSettings, ...]:
    """Entries of MCP["ISSUERS"], as the setting is read."""
    with override_settings(MCP={"ISSUERS": list(entries)}):
        return conf.get_settings().issuers
