"""Metadata documents: which URLs are fetched, responses of a hostile TLS server, and lifetimes."""

import asyncio
import gzip
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pytest
from asgiref.sync import async_to_sync

from mcp_django.contrib.oauth.clients.client_metadata import MAX_METADATA_BYTES, ClientMetadataRefused
from mcp_django.contrib.oauth.clients.documents import (
    DEFAULT_LIFETIME_SECONDS,
    FETCH_TIMEOUT_SECONDS,
    MAX_LIFETIME_SECONDS,
    MIN_LIFETIME_SECONDS,
    ClientDocument,
    fetch_document,
    find_url_problem,
    get_lifetime_seconds,
    is_document_url,
    make_fetcher,
)
from mcp_django.providers.safe_fetch import Fetcher
from tests.contrib.oauth.document_server import HOST, PUBLIC, DocumentServer, certificate, document, json_page, response
from tests.support.clock import Clock
from tests.support.waiting import WAIT_SECONDS, eventually

URL = f"https://{HOST}/client.json"
INTERNAL = [
    "127.0.0.1",
    "10.0.0.1",
    "169.254.169.254",
    "224.0.0.1",
    "ff02::1",
    "64:ff9b:1::1",
    "64:ff9b::a9fe:a9fe",
    "::10.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:0:10.0.0.1",
    "2606:4700::5efe:10.0.0.1",
    "fd00:ec2::254",
]
NO_ID = {
    "http": "http://client.example/c.json",
    "capitals": "HTTPS://client.example/c.json",
    "a host in capitals": "https://Client.example/c.json",
    "another port": "https://client.example:8443/c.json",
    "port 22": "https://client.example:22/c.json",
    "an empty port": "https://client.example:/c.json",
    "a query": "https://client.example/c.json?x=1",
    "an empty query": "https://client.example/c.json?",
    "a fragment": "https://client.example/c.json#x",
    "an empty fragment": "https://client.example/c.json#",
    "a login": "https://u:p@client.example/c.json",
    "an empty login": "https://@client.example/c.json",
    "no path": "https://client.example",
    "the root": "https://client.example/",
    "dot segments": "https://client.example/a/../c.json",
    "a dot segment": "https://client.example/./c.json",
    "escaped dot segments": "https://client.example/a/%2e%2e/c.json",
    "half escaped dot segments": "https://client.example/a/.%2E/c.json",
    "escaped slashes around dots": "https://client.example/a%2f..%2fc.json",
    "a line break": "https://client.example/c\r\nX: y",
    "a trailing line break": "https://client.example/c.json\n",
    "a space": "https://client.example/c json",
    "NUL": "https://client.example/\x00",
    "a surrogate": "https://client.example/\ud800",
    "other letters": "https://\u0441lient.example/c.json",
    "a broken escape": "https://client.example/%zz",
    "a backslash": "https://client.example\\@evil.example/c.json",
    "an address": "https://93.184.215.14/c.json",
    "an IPv6 address": "https://[2606:4700::1]/c.json",
    "loopback": "https://127.0.0.1/c.json",
    "a number": "https://2130706433/c.json",
    "a short address": "https://127.1/c.json",
    "an address in hexadecimal": "https://0x7f.0x1/c.json",
    "localhost": "https://localhost/c.json",
    "a trailing dot": "https://client.example./c.json",
    "two dots": "https://client..example/c.json",
    "too long": "https://client.example/" + "c" * 255,
    "nothing": "https://",
}


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificate(tmp_path_factory.mktemp("tls") / "client.pem", HOST, "feeds.example")


@pytest.fixture
def web(pem: Path) -> Iterator[DocumentServer]:
    with DocumentServer(pem).running() as server:
        yield server


async def get(web: DocumentServer, url: str = URL, fetcher: Fetcher | None = None) -> ClientDocument:
    return await fetch_document(url, fetcher or web.fetcher(), schemes=("cursor",))


def test_only_an_https_url_is_the_id_of_a_document() -> None:
    assert is_document_url(URL)
    assert is_document_url("HTTPS://client.example/")
    assert not any(map(is_document_url, ["", "https", "http://client.example/", "abc", "x-https://a"]))


def test_an_ambiguous_url_is_not_fetched(subtests: pytest.Subtests) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        raise AssertionError("a name was asked for")

    for name, url in NO_ID.items():
        with subtests.test(name):
            assert find_url_problem(url)
            with pytest.raises(ClientMetadataRefused):
                async_to_sync(fetch_document)(url, Fetcher(resolve=resolve), schemes=())


REAL_IDS: list[str] = [
    "https://claude.ai/oauth/mcp-oauth-client-metadata",
    "https://claude.ai/oauth/claude-code-client-metadata",
    "https://chatgpt.com/oauth/client.json",
    "https://chatgpt.com/oauth/codex/client.json",
    "https://vscode.dev/oauth/client-metadata.json",
    "https://xn--bcher-kva.example/c%20d/~x;y=1",
    "https://client.example:443/c.json",
    "https://client.example/" + "c" * 232,
]


def test_the_urls_of_real_clients_can_be_ids(subtests: pytest.Subtests) -> None:
    for url in REAL_IDS:
        with subtests.test(url=url):
            assert find_url_problem(url) is None


async def test_a_document_is_fetched_over_tls_from_the_address_that_was_checked(web: DocumentServer) -> None:
    web.pages["/client.json"] = document(URL, client_name="Claude")
    found = await get(web)
    assert found.metadata.name == "Claude"
    assert found.metadata.redirect_uris == ("https://client.example/cb",)
    assert found.lifetime_seconds == DEFAULT_LIFETIME_SECONDS
    assert len(found.digest) == 64
    assert web.connected == [f"{PUBLIC}:443"]
    assert b"accept: application/json" in web.heads[0].lower()
    assert b"cookie" not in web.heads[0].lower()


async def test_a_certificate_of_another_host_is_refused(web: DocumentServer) -> None:
    other = "https://other.example/client.json"
    web.pages["/client.json"] = document(other)
    with pytest.raises(ClientMetadataRefused, match="not fetched"):
        await get(web, other)
    assert not web.asked


def test_private_addresses_are_not_connected_to(web: DocumentServer, subtests: pytest.Subtests) -> None:
    for address in INTERNAL:
        for addresses in ([address], [PUBLIC, address], [address, PUBLIC]):
            with subtests.test(addresses=addresses):
                web.addresses = addresses
                with pytest.raises(ClientMetadataRefused, match="public internet"):
                    async_to_sync(get)(web)
                assert not web.connected


async def test_a_host_name_is_resolved_once(web: DocumentServer) -> None:
    answers = [[PUBLIC], ["127.0.0.1"], ["127.0.0.1"]]
    web.addresses = lambda: answers.pop(0)
    web.pages["/client.json"] = document(URL)
    assert await get(web)
    assert web.connected == [f"{PUBLIC}:443"]
    with pytest.raises(ClientMetadataRefused):
        await get(web)
    assert len(web.connected) == 1


def test_a_redirect_is_not_followed(web: DocumentServer, subtests: pytest.Subtests) -> None:
    web.pages["/other.json"] = document(URL)
    for status in (301, 302, 303, 307, 308):
        with subtests.test(status=status):
            web.asked.clear()
            web.pages["/client.json"] = response(b"", status=f"{status} Moved", location="/other.json")
            with pytest.raises(ClientMetadataRefused, match="redirects"):
                async_to_sync(get)(web)
            assert web.asked == ["/client.json"]


PAGES: dict[str, tuple[bytes, str]] = {
    "not found": (response(b"", status="404 Not Found"), "status 404"),
    "not modified": (response(b"", status="304 Not Modified"), "status 304"),
    "created": (response(b"{}", status="201 Created"), "status 201"),
    "an error": (response(b"{}", status="500 Oops"), "status 500"),
    "HTML": (response(b"{}", "text/html"), "content type"),
    "plain text": (response(b"{}", "text/plain"), "content type"),
    "a made-up type": (response(b"{}", "text/x+json"), "content type"),
    "no JSON": (response(b"<html>"), "not JSON"),
    "nothing": (response(b""), "not JSON"),
    "an array": (response(b"[]"), "not a JSON object"),
    "nested JSON": (response(b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}"), "JSON|nested"),
    "20 kB": (response(b'{"a":"' + b"x" * 20_000 + b'"}'), "more than"),
    "a bomb": (response(gzip.compress(b" " * 50_000_000), content_encoding="gzip"), "more than"),
    "an unknown encoding": (response(b"x", content_encoding="br"), "encoding"),
    "another client_id": (document("https://client.example/other.json"), "client_id"),
    "no client_id": (document(URL, client_id=...), "client_id"),
    "a secret": (document(URL, client_secret="s"), "client_secret"),
    "no name": (document(URL, client_name=...), "client_name"),
    "an http redirect": (document(URL, redirect_uris=["http://evil.example/"]), "http"),
    "no redirect": (document(URL, redirect_uris=[]), "redirect_uris"),
    "no HTTP": (b"\x00\x01\x02", "connection failed"),
}


def test_other_pages_are_refused(web: DocumentServer, subtests: pytest.Subtests) -> None:
    for name, (page, why) in PAGES.items():
        with subtests.test(name):
            web.pages["/client.json"] = page
            with pytest.raises(ClientMetadataRefused, match=why):
                async_to_sync(get)(web)


async def test_a_compressed_document_of_a_json_media_type_is_accepted(web: DocumentServer) -> None:
    packed = gzip.compress(document(URL).split(b"\r\n\r\n", 1)[1])
    web.pages["/client.json"] = response(
        packed, "application/oauth-client+json; charset=utf-8", content_encoding="gzip"
    )
    assert await get(web)


async def test_a_slow_server_is_given_up_at_the_timeout(web: DocumentServer, clock: Clock) -> None:
    """The timeout is for the whole document: each further byte does not extend it."""
    go_on, gone = threading.Event(), threading.Event()

    async def drip(writer: asyncio.StreamWriter) -> None:
        await eventually(go_on.is_set)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 10000\r\n\r\n ")
        await writer.drain()
        with suppress(OSError):
            await writer.wait_closed()
        gone.set()

    web.pages["/client.json"] = drip
    fetched = asyncio.create_task(get(web))
    await eventually(lambda: web.asked)
    await clock.advance(WAIT_SECONDS * 0.6)
    go_on.set()
    await eventually(lambda: web.received)
    await clock.advance(WAIT_SECONDS * 0.5)
    await eventually(fetched.done, "more bytes give the server more time")
    with pytest.raises(ClientMetadataRefused, match="longer than"):
        await fetched
    await eventually(gone.is_set)


async def test_with_allowed_hosts_no_other_host_is_fetched_from(web: DocumentServer) -> None:
    web.pages["/client.json"] = document(URL)
    assert await get(web, fetcher=web.fetcher([HOST]))
    with pytest.raises(ClientMetadataRefused, match="allowed"):
        await get(web, fetcher=web.fetcher(["claude.ai"]))


def test_the_fetcher_refuses_private_addresses_and_plain_http() -> None:
    made: Any = make_fetcher(["intranet.example"])
    policy = made._client.policy
    assert (made._private, made._http, policy.max_redirects, policy.max_bytes) == (False, False, 0, MAX_METADATA_BYTES)
    assert policy.timeout == FETCH_TIMEOUT_SECONDS


LIFETIMES: list[tuple[str, int]] = [
    ("", DEFAULT_LIFETIME_SECONDS),
    ("public", DEFAULT_LIFETIME_SECONDS),
    ("max-age=600", 600),
    ("public, Max-Age = 7200", 7200),
    ('max-age="900"', 900),
    ("max-age=0", MIN_LIFETIME_SECONDS),
    ("max-age=-5", DEFAULT_LIFETIME_SECONDS),
    ("max-age=99999999999", MAX_LIFETIME_SECONDS),
    ("max-age=31536000, immutable", MAX_LIFETIME_SECONDS),
    ("s-maxage=600", DEFAULT_LIFETIME_SECONDS),
    ("no-store", MIN_LIFETIME_SECONDS),
    ("No-Cache, max-age=9000", MIN_LIFETIME_SECONDS),
    ("max-age=abc", DEFAULT_LIFETIME_SECONDS),
]


def test_the_lifetime_of_a_document_is_bounded(subtests: pytest.Subtests) -> None:
    for header, seconds in LIFETIMES:
        with subtests.test(header=header):
            assert get_lifetime_seconds(header) == seconds


async def test_the_lifetime_of_a_document_comes_from_its_headers(web: DocumentServer) -> None:
    body = orjson.loads(document(URL).split(b"\r\n\r\n", 1)[1])
    web.pages["/client.json"] = json_page(body, cache_control="max-age=1200")
    assert (await get(web)).lifetime_seconds == 1200
