"""A site with the metadata documents of clients over TLS.

A certificate authority of the tests issues its certificate.
"""

import datetime
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

Document = dict[str, Any] | str | bytes
"""An object, an address to redirect to, or a body as it is."""


class Authority:
    """A certificate authority whose certificates are valid for a day."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Authority of the tests")])
        identity = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        uses = dict.fromkeys(_USES, False) | {"key_cert_sign": True, "crl_sign": True}
        root = (
            self._builder(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.KeyUsage(**uses), critical=True)
            .add_extension(identity, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.bundle = directory / "authority.pem"
        """The file with the certificate of the authority, which a client loads to trust it."""
        self.bundle.write_bytes(root.public_bytes(serialization.Encoding.PEM))

    def context(self, host: str) -> ssl.SSLContext:
        """Return a TLS context for the server of a host, with a certificate of the host."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        leaf = (
            self._builder(name, key.public_key())
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(authority, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        file = self._directory / f"{host}.pem"
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        file.write_bytes(private + leaf.public_bytes(serialization.Encoding.PEM))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context

    def _builder(self, name: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
        )


_USES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


class Documents:
    """A running site: `pages` are its documents by path, `asked` the requested paths."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.pages: dict[str, Document] = {}
        self.asked: list[str] = []


@contextmanager
def served(context: ssl.SSLContext) -> Iterator[Documents]:
    """Run the site on a free port of loopback."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    documents = Documents(server.server_address[1])
    server.RequestHandlerClass = _handler(documents)
    server.daemon_threads = True
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield documents
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(documents: Documents) -> Callable[..., BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            documents.asked.append(self.path)
            page = documents.pages.get(self.path)
            if isinstance(page, str):
                self._answer(302, b"", ("Location", page))
            elif page is None:
                self._answer(404, b"")
            else:
                body = page if isinstance(page, bytes) else json.dumps(page).encode()
                self._answer(200, body, ("Content-Type", "application/json"))

        def _answer(self, status: int, body: bytes, *headers: tuple[str, str]) -> None:
            self.send_response(status)
            for header in (*headers, ("Content-Length", str(len(body)))):
                self.send_header(*header)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            pass

    return Handler
