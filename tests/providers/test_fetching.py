"""Safe fetching: the known ways into the network, and the limits of a fetch."""

import asyncio
import datetime
import gzip
import ssl
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from mcp_django.protocol.errors import InternalError, ResourceNotFound
from mcp_django.protocol.ip_ranges import is_private, is_public
from mcp_django.providers import HTTPProvider, HTTPResource
from mcp_django.providers.files.patterns import ContentTooLarge
from mcp_django.providers.safe_fetch import Fetcher, FetchFailed, FetchRefused
from mcp_django.schema import DeclarationError
from tests.server.client import PipelineClient, make_server
from tests.support.clock import Clock
from tests.support.waiting import WAIT_SECONDS

PUBLIC = "93.184.215.14"
INTERNAL = [
    "127.0.0.1",
    "127.9.9.9",
    "0.0.0.0",
    "10.0.0.1",
    "172.16.3.4",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "100.100.100.200",
    "192.0.0.192",
    "198.18.0.1",
    "192.88.99.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:a9fe:a9fe",
    "::ffff:10.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::1",
    "::ffff:0:10.0.0.1",
    "2606:4700::5efe:10.0.0.1",
    "2606:4700::200:5efe:a9fe:a9fe",
    "2002:7f00:1::1",
    "2002:a9fe:a9fe::",
    "2001::1",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "fc00::1",
    "fd00:ec2::254",
    "ff02::1",
    "2001:db8::1",
    "not an address",
]


def test_an_address_of_the_own_network_is_not_public(subtests: pytest.Subtests) -> None:
    for address in INTERNAL:
        with subtests.test(address=address):
            assert not is_public(address)


def test_an_address_of_the_internet_is_public(subtests: pytest.Subtests) -> None:
    for address in [PUBLIC, "2606:4700::6810:84e5", "64:ff9b::5db8:d70e", "::ffff:93.184.215.14"]:
        with subtests.test(address=address):
            assert is_public(address)
            assert not is_private(address)


def test_private_addresses_are_those_of_own_networks() -> None:
    chosen = {"127.0.0.1", "127.9.9.9", "10.0.0.1", "172.16.3.4", "192.168.1.1", "::1", "fc00::1"}
    mapped = {"::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::1"}
    mapped |= {"::ffff:0:10.0.0.1", "2606:4700::5efe:10.0.0.1"}
    assert {address for address in INTERNAL if is_private(address)} == chosen | mapped


class Web:
    """Hosts, their addresses and their pages; records the requests."""

    def __init__(self, *pages: httpx.Response, addresses: Sequence[str] = (PUBLIC,)) -> None:
        self.pages, self.addresses = list(pages), list(addresses)
        self.asked: list[httpx.Request] = []
        self.resolved: list[str] = []

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        self.resolved.append(host)
        return self.addresses

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        return self.pages.pop(0)

    def fetcher(self, **given: Any) -> Fetcher:
        return Fetcher(resolve=self.resolve, transport=lambda: httpx.MockTransport(self.answer), **given)


def page(text: str = "hello", status: int = 200, **headers: str) -> httpx.Response:
    given = {"content-type": "text/plain", **{name.replace("_", "-"): value for name, value in headers.items()}}

    async def body() -> AsyncIterator[bytes]:
        yield text.encode()

    return httpx.Response(status, headers=given, content=body())


def moved(to: str) -> httpx.Response:
    return httpx.Response(302, headers={"location": to})


async def test_the_connection_goes_to_the_checked_address_with_the_requested_name() -> None:
    web = Web(page(cache_control="max-age=60"))
    found = await web.fetcher().fetch("https://user-content.example/a?b=c#d")
    assert (found.status, found.mime_type, found.body) == (200, "text/plain", b"hello")
    assert found.cache_control == "max-age=60"
    (asked,) = web.asked
    assert str(asked.url) == f"https://{PUBLIC}/a?b=c"
    assert asked.headers["host"] == "user-content.example"
    assert asked.extensions["sni_hostname"] == "user-content.example"
    assert web.resolved == ["user-content.example"], "a second question could have another answer"


async def test_a_name_with_an_internal_address_is_refused_before_a_request(subtests: pytest.Subtests) -> None:
    for addresses in [["127.0.0.1"], ["169.254.169.254"], [PUBLIC, "10.0.0.1"], ["::ffff:7f00:1"]]:
        with subtests.test(addresses=addresses):
            web = Web(page(), addresses=addresses)
            with pytest.raises(FetchRefused, match="not on the public internet") as told:
                await web.fetcher().fetch("https://evil.example/")
            assert not web.asked
            assert "127" not in str(told.value)


async def test_a_url_that_is_no_plain_https_is_refused(subtests: pytest.Subtests) -> None:
    for url in [
        "http://evil.example/",
        "file:///etc/passwd",
        "gopher://evil.example/",
        "ftp://evil.example/",
        "https:///nowhere",
        "https://user:password@evil.example/",
        "https://evil.example@127.0.0.1/",
        "https://evil.example:22/",
        "https://evil.example:6379/",
        "//evil.example/",
        "https://[::1",
        "https://evil.example:99999/",
        "",
        "https://evil .example/",
    ]:
        with subtests.test(url=url):
            web = Web(page())
            with pytest.raises(FetchRefused):
                await web.fetcher().fetch(url)
            assert not web.asked
            assert not web.resolved


async def test_a_spelling_of_loopback_is_refused_by_its_address(subtests: pytest.Subtests) -> None:
    for host in ["127.0.0.1", "[::1]", "2130706433", "0x7f.1", "127.1", "localhost"]:
        with subtests.test(host=host), pytest.raises((FetchRefused, FetchFailed)):
            await Fetcher(timeout=WAIT_SECONDS).fetch(f"https://{host}/")


async def test_only_allowed_hosts_are_requested() -> None:
    web = Web(page(), page(), page())
    fetcher = web.fetcher(allowed_hosts=["docs.example", ".wide.example"])
    for host in ("docs.example", "wide.example", "a.wide.example"):
        await fetcher.fetch(f"https://{host}/")
    for host in ("evil.example", "docs.example.evil.example", "notwide.example", "a.docs.example"):
        with pytest.raises(FetchRefused, match="allowed"):
            await fetcher.fetch(f"https://{host}/")
    assert len(web.resolved) == 3


async def test_private_addresses_are_for_allowed_hosts_and_never_metadata() -> None:
    web = Web(page(), addresses=["10.0.0.1"])
    fetcher = web.fetcher(allowed_hosts=["intranet.example"], private=True, http=True)
    assert (await fetcher.fetch("http://intranet.example:8080/")).status == 200
    web.addresses = ["169.254.169.254"]
    with pytest.raises(FetchRefused):
        await fetcher.fetch("http://intranet.example/")
    with pytest.raises(ValueError, match="allowed_hosts"):
        Fetcher(private=True)


async def test_redirects_are_off() -> None:
    web = Web(moved("https://docs.example/b"), page())
    with pytest.raises(FetchFailed, match="redirects"):
        await web.fetcher().fetch("https://docs.example/a")
    assert len(web.asked) == 1


async def test_each_redirect_is_checked_like_the_first_url(subtests: pytest.Subtests) -> None:
    for target in ["http://docs.example/", "https://evil.example/", "file:///etc/passwd", "//evil.example"]:
        with subtests.test(target=target):
            web = Web(moved(target), page())
            with pytest.raises(FetchRefused):
                await web.fetcher(redirects=3, allowed_hosts=["docs.example"]).fetch("https://docs.example/")
            assert len(web.asked) == 1


async def test_a_redirect_into_the_network_is_refused() -> None:
    web = Web(moved("https://other.example/"), page())

    async def resolve(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"] if host == "other.example" else [PUBLIC]

    web.resolve = resolve  # type: ignore[method-assign]
    with pytest.raises(FetchRefused):
        await web.fetcher(redirects=3).fetch("https://docs.example/")


async def test_own_headers_are_sent_to_their_origin_only() -> None:
    web = Web(moved("/b"), moved("https://other.example/"), moved("https://docs.example/c"), page())
    await web.fetcher(redirects=3).fetch("https://docs.example/a", {"Authorization": "Bearer s", "Host": "evil"})
    assert [request.headers.get("authorization") for request in web.asked] == ["Bearer s", "Bearer s", None, "Bearer s"]
    assert web.asked[0].headers["host"] == "docs.example"


async def test_redirects_are_limited() -> None:
    web = Web(*(moved("/again") for _ in range(9)))
    with pytest.raises(FetchFailed, match="too often"):
        await web.fetcher(redirects=3).fetch("https://docs.example/")
    assert len(web.asked) == 4


def streamed(*pieces: bytes, **headers: str) -> tuple[httpx.Response, list[bytes]]:
    taken: list[bytes] = []

    async def body() -> AsyncIterator[bytes]:
        for piece in pieces:
            taken.append(piece)
            yield piece

    return httpx.Response(200, headers={k.replace("_", "-"): v for k, v in headers.items()}, content=body()), taken


async def test_an_endless_body_is_aborted_at_the_limit() -> None:
    response, taken = streamed(*[b"x" * 600] * 100)
    with pytest.raises(ContentTooLarge):
        await Web(response).fetcher(max_size=1000).fetch("https://docs.example/")
    assert len(taken) == 2


class Counted:
    """A decompressor that records the longest piece of its output."""

    longest = 0

    def __init__(self, bits: int) -> None:
        self._inner = zlib.decompressobj(bits)

    def decompress(self, data: bytes, room: int) -> bytes:
        piece = self._inner.decompress(data, room)
        Counted.longest = max(Counted.longest, len(piece))
        return piece


async def test_a_compressed_body_is_bounded_by_its_decompressed_size(
    monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    for encoding in ["gzip", "deflate"]:
        with subtests.test(encoding=encoding):
            monkeypatch.setattr("mcp_django.http_client._unpacker", Counted)
            pack = gzip.compress if encoding == "gzip" else zlib.compress
            response, _ = streamed(pack(b"hello"), content_encoding=encoding)
            assert (await Web(response).fetcher().fetch("https://docs.example/")).body == b"hello"
            bomb, _ = streamed(pack(b"\0" * 50_000_000), content_encoding=encoding)
            with pytest.raises(ContentTooLarge):
                await Web(bomb).fetcher(max_size=1000).fetch("https://docs.example/")
            assert Counted.longest <= 1001


async def test_an_encoding_that_cannot_be_bounded_is_refused(subtests: pytest.Subtests) -> None:
    for body, encoding in [(b"x", "br"), (b"not gzip", "gzip"), (b"x", "gzip, gzip")]:
        with subtests.test(body=body, encoding=encoding):
            response, _ = streamed(body, content_encoding=encoding)
            with pytest.raises(FetchFailed):
                await Web(response).fetcher().fetch("https://docs.example/")


async def test_a_fetch_has_one_timeout(clock: Clock) -> None:
    async def never(host: str, port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        return ()

    fetching = asyncio.create_task(Fetcher(resolve=never, timeout=10).fetch("https://docs.example/"))
    await clock.advance(10)
    with pytest.raises(FetchFailed, match=r"longer than 10 seconds"):
        await fetching


async def test_the_next_address_is_tried_when_one_does_not_answer() -> None:
    web = Web(page(), addresses=[PUBLIC, "2606:4700::6810:84e5"])
    answer, seen = web.answer, []

    def first_fails(request: httpx.Request) -> httpx.Response:
        seen.append(request.url.host)
        if len(seen) == 1:
            raise httpx.ConnectError("no")
        return answer(request)

    web.answer = first_fails  # type: ignore[method-assign]
    assert (await web.fetcher().fetch("https://docs.example/")).status == 200
    assert seen == [PUBLIC, "2606:4700::6810:84e5"]


def certificate(host: str, path: Path) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)])
    now = datetime.datetime.now(datetime.UTC)
    cert = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(cert.public_bytes(pem) + secret)
    return path


async def test_tls_is_with_the_name_over_a_true_connection_to_the_address(tmp_path: Path) -> None:
    pem = certificate("feeds.example", tmp_path / "feeds.pem")
    names: list[str | None] = []
    ours, theirs = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context(cafile=pem)
    ours.load_cert_chain(pem)
    ours.sni_callback = lambda connection, name, context: names.append(name)
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=latin-1\r\nContent-Length: 1\r\n\r\n\xfc")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=ours)
    port = server.sockets[0].getsockname()[1]

    async def resolve(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    def fetcher(host: str) -> Fetcher:
        transport: Callable[[], Any] = lambda: httpx.AsyncHTTPTransport(verify=theirs, trust_env=False)  # noqa: E731
        return Fetcher(allowed_hosts=[host], private=True, resolve=resolve, transport=transport)

    async with server:
        found = await fetcher("feeds.example").fetch(f"https://feeds.example:{port}/x")
        assert (found.status, found.mime_type, found.charset, found.body) == (200, "text/plain", "latin-1", b"\xfc")
        assert names == ["feeds.example"]
        assert f"host: feeds.example:{port}".encode() in heads[0].lower()
        with pytest.raises(FetchFailed, match="connection failed"):
            await fetcher("other.example").fetch(f"https://other.example:{port}/x")
        assert len(heads) == 1


def served(monkeypatch: pytest.MonkeyPatch, web: Web, provider: Any) -> PipelineClient:
    monkeypatch.setattr(provider._source._fetcher._client, "_resolve", web.resolve)
    monkeypatch.setattr(provider._source._fetcher._client, "_transport", lambda: httpx.MockTransport(web.answer))
    return PipelineClient(make_server(providers=[provider]))


async def read(client: PipelineClient, uri: str) -> dict[str, Any]:
    (contents,) = (await client.request("resources/read", {"uri": uri}))["contents"]
    found: dict[str, Any] = contents
    return found


async def test_one_page_is_a_resource(monkeypatch: pytest.MonkeyPatch) -> None:
    web = Web(page("Grüße", content_type="text/html; charset=utf-8"), page(status=404), page(status=503))
    provider = HTTPResource("https://docs.example/a", "web://a", headers={"X-Key": "s3cret"})
    client = served(monkeypatch, web, provider)
    assert await client.names("resources/list", "resources", "uri") == ["web://a"]
    assert await read(client, "web://a") == {"uri": "web://a", "mimeType": "text/html", "text": "Grüße"}
    assert web.asked[0].headers["x-key"] == "s3cret"
    with pytest.raises(ResourceNotFound):
        await read(client, "web://a")
    with pytest.raises(InternalError, match="answered 503") as told:
        await read(client, "web://a")
    assert "docs.example" not in str(told.value)
    assert "s3cret" not in repr(provider)


async def test_a_page_cannot_choose_a_codec_that_is_no_text_encoding(
    monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    for charset in ["punycode", "idna", "undefined", "zlib", "rot13", "unicode_escape", "no-such"]:
        with subtests.test(charset=charset):
            web = Web(page("\\x41-é", content_type=f"text/plain; charset={charset}"))
            client = served(monkeypatch, web, HTTPResource("https://docs.example/a", "web://a"))
            assert (await read(client, "web://a"))["text"] == "\\x41-é"


async def test_pages_below_a_url_are_resources(monkeypatch: pytest.MonkeyPatch) -> None:
    web = Web(page("b"), page("c"))
    provider = HTTPProvider("https://docs.example/api/", uri_prefix="web://", paths=["b.txt"])
    client = served(monkeypatch, web, provider)
    assert await client.names("resources/list", "resources", "uri") == ["web://b.txt"]
    assert (await read(client, "web://b.txt"))["text"] == "b"
    assert (await read(client, "web://d%20e/c%3F.txt"))["text"] == "c"
    assert [request.url.raw_path for request in web.asked] == [b"/api/b.txt", b"/api/d%20e/c%3F.txt"]
    for path in ("../admin", "%2e%2e/admin", "%252e%252e/../x", "/evil.example/", "a//b", "a%00b", "..%5Cadmin"):
        with pytest.raises(ResourceNotFound):
            await read(client, f"web://{path}")
    assert len(web.asked) == 2


async def test_reads_can_be_restricted_to_listed_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = HTTPProvider("https://docs.example/", uri_prefix="web://", paths=["b.txt"], only_listed=True)
    client = served(monkeypatch, Web(page("b")), provider)
    assert (await client.request("resources/templates/list"))["resourceTemplates"] == []
    assert (await read(client, "web://b.txt"))["text"] == "b"
    with pytest.raises(ResourceNotFound):
        await read(client, "web://c.txt")


async def test_a_page_with_an_internal_address_is_an_error_without_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    client = served(monkeypatch, Web(page(), addresses=["10.1.2.3"]), HTTPResource("https://docs.example/", "web://a"))
    with pytest.raises(InternalError) as told:
        await read(client, "web://a")
    assert "public internet" in str(told.value)
    assert "10.1" not in str(told.value)


def test_invalid_options_are_refused_at_the_declaration(subtests: pytest.Subtests) -> None:
    for url, given in [
        ("http://docs.example/", {}),
        ("file:///etc/passwd", {}),
        ("https://docs.example/", {"allowed_hosts": "docs.example"}),
        ("https://docs.example/", {"permision": "x"}),
    ]:
        with subtests.test(url=url, given=given), pytest.raises(DeclarationError):
            HTTPResource(url, "web://a", **given)
