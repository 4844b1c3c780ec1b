"""Targets are values: checked when they are made, comparable, and without secrets in their repr."""

import pytest

from mcp_django.client.transports.targets import SSE, Stdio, StreamableHTTP, WebSocket

URL = "https://user:password@example.com:8443/mcp?key=secret"
SECRETS = ("user", "password", "secret", "token-value", "--api-key")


def test_the_repr_of_a_target_holds_no_secret(subtests: pytest.Subtests) -> None:
    for target in [
        StreamableHTTP(URL, headers={"Authorization": "token-value"}),
        SSE(URL, headers={"Authorization": "token-value"}),
        WebSocket(URL.replace("https", "wss"), headers={"Authorization": "token-value"}),
        Stdio("server", ["--api-key=secret"], env={"TOKEN": "token-value"}),
    ]:
        with subtests.test(target=target):
            for text in (repr(target), str(target), f"{target}", target.display_name, repr([target])):
                assert not [secret for secret in SECRETS if secret in text], text
            assert ("server" if isinstance(target, Stdio) else "example.com:8443/mcp") in repr(target)


def test_an_invalid_url_is_refused_without_being_shown(subtests: pytest.Subtests) -> None:
    for kind in [StreamableHTTP, SSE]:
        for url in [
            "ws://example.com/",
            "example.com/mcp",
            "https://",
            "file:///etc/passwd",
            "https://example.com/#part",
            "https://exa mple.com/",
            "https://example.com/\r\nX: y",
            "https://example.com:port/secret",
            "https://[::1/secret",
            None,
        ]:
            with subtests.test(url=url):
                with pytest.raises(ValueError, match="the URL") as refused:
                    kind(url)
                assert "secret" not in str(refused.value)


def test_sockets_have_urls_of_their_own() -> None:
    with pytest.raises(ValueError, match="ws:// or wss://"):
        WebSocket("https://example.com/")


def test_headers_that_cannot_be_sent_are_refused_without_their_values(subtests: pytest.Subtests) -> None:
    for headers, said in [
        ({"X-Key": "secret\r\nHost: evil"}, "the value of the header X-Key is invalid"),
        ({"X-Key": "secret "}, "is invalid"),
        ({"X-Key": "漢secret"}, "is invalid"),
        ({"X-Key": b"secret"}, "is invalid"),
        ({"X Key": "secret"}, "an invalid header name"),
        ({"Host": "secret"}, "is set by the transport"),
        ({"Mcp-Session-Id": "secret"}, "is set by the transport"),
    ]:
        for kind in [StreamableHTTP, SSE]:
            with subtests.test(headers=headers, said=said):
                with pytest.raises(ValueError, match=said) as refused:
                    kind("https://example.com/mcp", headers=headers)
                assert "secret" not in str(refused.value)


def test_invalid_process_options_are_refused(subtests: pytest.Subtests) -> None:
    for make in [
        lambda: Stdio(""),
        lambda: Stdio("a\0b"),
        lambda: Stdio("server", "--flag value"),
        lambda: Stdio("server", ["a\0b"]),
        lambda: Stdio("server", [1]),
        lambda: Stdio("server", env={"": "x"}),
        lambda: Stdio("server", env={"A=B": "x"}),
        lambda: Stdio("server", env={"A": "x\0"}),
        lambda: Stdio("server", env={"A": 1}),
    ]:
        with subtests.test(), pytest.raises(ValueError, match=r"command|args|variables"):
            make()


def test_targets_with_the_same_options_are_equal_and_keep_them() -> None:
    headers = {"A": "b"}
    first, second = (StreamableHTTP("https://example.com/mcp", headers=headers) for _ in range(2))
    assert first == second
    assert hash(first) == hash(second)
    headers["A"] = "changed"
    assert first.headers == {"A": "b"}
    args = ["a"]
    command = Stdio("server", args)
    args.append("b")
    assert command == Stdio("server", ("a",))
    assert first != SSE("https://example.com/mcp", headers={"A": "b"})
