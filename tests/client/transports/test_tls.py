"""TLS: certificates are verified, by the system's authorities or by those of the project."""

import datetime
import ipaddress
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from mcp_django.client.errors import ClientConnectionError
from mcp_django.client.transports.targets import SSE, StreamableHTTP, WebSocket
from tests.client.listeners import Exchange, exchanges, listening
from tests.client.transports.test_http import Wire


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a self-signed certificate for 127.0.0.1, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(secret + made.public_bytes(serialization.Encoding.PEM))
    return path


async def answer(exchange: Exchange) -> None:
    if exchange.method == "POST":
        await exchange.result(safe=True)
    else:
        await exchange.answer(404)


async def test_a_certificate_of_an_unknown_authority_ends_the_connection(
    certificate: Path, subtests: pytest.Subtests
) -> None:
    for kind in [StreamableHTTP, SSE, WebSocket]:
        with subtests.test():
            server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            server.load_cert_chain(certificate)
            scheme = "wss" if kind is WebSocket else "https"
            trusting = ssl.create_default_context(cafile=str(certificate))
            async with listening(exchanges(answer), server) as port:
                url = f"{scheme}://127.0.0.1:{port}/mcp"
                with pytest.raises(ClientConnectionError, match=r"could not be reached: .*certificate verify failed"):
                    async with kind(url, environment_proxies=False).open() as streams:
                        await Wire(*streams).request("fine")
                if kind is StreamableHTTP:
                    async with kind(url, environment_proxies=False, ssl_context=trusting).open() as streams:
                        assert await Wire(*streams).request("fine") == {"safe": True}
                else:  # the port accepts connections and closes them
                    with pytest.raises(ClientConnectionError, match="answered HTTP 404"):
                        async with kind(url, environment_proxies=False, ssl_context=trusting).open():
                            pass
