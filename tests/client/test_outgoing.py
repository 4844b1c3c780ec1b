"""Requests to URLs that another server supplies: they do not reach into the network."""

from collections.abc import AsyncIterator, Sequence

import httpx
import httpx2
import pytest

from mcp_django.client.oauth.http import MAX_RESPONSE_BYTES, AuthorizationFailed, OAuthHTTPClient
from tests.client.authority import PUBLIC, SERVER, Authority, unread

WHERE = "https://id.example/metadata"


async def ask(authority: Authority, url: str = WHERE, *, server: str = SERVER, method: str = "GET") -> httpx2.Response:
    return await authority.outgoing(server).send(httpx2.Request(method, url, headers={"X-Mine": "1"}))


def build_server(*answers: httpx.Response) -> Authority:
    """Build a server that gives these responses in order, to any request."""
    authority, left = Authority(), list(answers)
    authority.other = dict.fromkeys(
        (WHERE, "https://id.example/next", "https://other.example/"), lambda request: left.pop(0)
    )
    return authority


async def test_a_response_is_returned() -> None:
    found = await ask(build_server(httpx.Response(200, json={"a": 1})))
    assert (found.status_code, found.json(), str(found.request.url)) == (200, {"a": 1}, WHERE)


async def test_invalid_urls_are_refused_without_a_request(subtests: pytest.Subtests) -> None:
    for url in [
        "http://id.example/",
        "http://127.0.0.1/",
        "ftp://id.example/",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "https://user:pw@id.example/",
        "https://id.example/#part",
        "https://id.example/" + "x" * 2000,
    ]:
        with subtests.test(url=url):
            authority = Authority()
            with pytest.raises(AuthorizationFailed):
                await ask(authority, url)
            assert authority.asked == []


async def test_hosts_inside_the_network_are_refused(subtests: pytest.Subtests) -> None:
    for addresses in [
        ["127.0.0.1"],
        ["10.0.0.1"],
        ["169.254.169.254"],
        ["::1"],
        ["::ffff:10.0.0.1"],
        [PUBLIC, "192.168.0.1"],
        [],
    ]:
        with subtests.test(addresses=addresses):
            authority = Authority()
            authority.addresses = {"id.example": addresses}
            with pytest.raises(AuthorizationFailed) as caught:
                await ask(authority)
            assert authority.asked == []
            assert not any(address in str(caught.value) for address in addresses)


async def test_hosts_inside_the_network_are_allowed_for_a_server_inside(subtests: pytest.Subtests) -> None:
    for own, allowed in [(["10.0.0.1"], True), ([PUBLIC], False), (["169.254.169.254"], False)]:
        with subtests.test(own=own, allowed=allowed):
            authority = build_server(httpx.Response(200))
            authority.addresses = {"mcp.example": own, "id.example": ["10.0.0.2"]}
            if allowed:
                assert (await ask(authority)).status_code == 200
            else:
                with pytest.raises(AuthorizationFailed):
                    await ask(authority)


async def test_a_metadata_service_is_never_requested() -> None:
    authority = Authority()
    authority.addresses = {"mcp.example": ["10.0.0.1"], "id.example": ["169.254.169.254"]}
    with pytest.raises(AuthorizationFailed):
        await ask(authority)


async def test_the_server_itself_may_be_anywhere() -> None:
    authority = Authority()
    authority.addresses = {"mcp.example": ["10.0.0.1"]}
    authority.other["https://mcp.example/x"] = lambda request: httpx.Response(200)
    assert (await ask(authority, "https://mcp.example/x")).status_code == 200


async def test_http_is_allowed_on_loopback_for_a_server_on_loopback(subtests: pytest.Subtests) -> None:
    for server, allowed in [("http://127.0.0.1:8000/mcp", True), (SERVER, False)]:
        with subtests.test(server=server, allowed=allowed):
            authority = Authority()
            authority.addresses = {"localhost": ["127.0.0.1"], "127.0.0.1": ["127.0.0.1"], "mcp.example": ["127.0.0.1"]}
            authority.other["http://localhost:9000/x"] = lambda request: httpx.Response(200)
            if allowed:
                assert (await ask(authority, "http://localhost:9000/x", server=server)).status_code == 200
            else:
                with pytest.raises(AuthorizationFailed):
                    await ask(authority, "http://localhost:9000/x", server=server)


async def test_redirects_are_followed_within_the_origin() -> None:
    moved = httpx.Response(307, headers={"Location": "/next"})
    assert (await ask(build_server(moved, httpx.Response(200)))).status_code == 200


async def test_redirects_out_of_the_origin_are_refused(subtests: pytest.Subtests) -> None:
    for location in ["https://other.example/", "http://id.example/next", "https://id.example:444/"]:
        with subtests.test(location=location):
            authority = build_server(httpx.Response(302, headers={"Location": location}), httpx.Response(200))
            assert (await ask(authority)).status_code == 302
            assert len(authority.asked) == 1


async def test_a_post_is_not_redirected() -> None:
    authority = build_server(httpx.Response(307, headers={"Location": "/next"}), httpx.Response(200))
    assert (await ask(authority, method="POST")).status_code == 307


async def test_redirects_are_limited() -> None:
    moved = [httpx.Response(302, headers={"Location": "/next"}) for _ in range(9)]
    with pytest.raises(AuthorizationFailed, match="too often"):
        await ask(build_server(*moved))


async def test_the_size_of_a_response_is_limited() -> None:
    read = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal read
        while True:
            read += 1
            yield b"x" * 4096

    with pytest.raises(AuthorizationFailed, match="longer than"):
        await ask(build_server(httpx.Response(200, content=endless())))
    assert read <= MAX_RESPONSE_BYTES / 4096 + 2


async def test_compressed_responses_are_refused() -> None:
    with pytest.raises(AuthorizationFailed, match="encoding"):
        await ask(build_server(httpx.Response(200, headers={"Content-Encoding": "gzip"}, content=b"")))


async def test_an_error_does_not_repeat_the_request() -> None:
    def broken(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("to s3cret")

    authority = Authority()
    authority.other[WHERE] = broken
    with pytest.raises(AuthorizationFailed) as caught:
        await ask(authority)
    assert "s3cret" not in str(caught.value)


async def test_the_host_name_is_resolved_once_and_kept() -> None:
    asked: list[str] = []
    seen: list[httpx.Request] = []

    async def resolve(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        return [PUBLIC]

    class Wire(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            seen.append(request)
            return unread(httpx.Response(200))

    await OAuthHTTPClient(SERVER, resolve=resolve, transport=Wire).send(httpx2.Request("GET", WHERE))
    assert asked == ["id.example"]
    (request,) = seen
    assert request.url.host == PUBLIC
    assert request.headers["host"] == "id.example"
    assert request.extensions["sni_hostname"] == "id.example"
    assert "cookie" not in request.headers
