"""Targets are values: checked when they are made, equal when they say the same, and silent about secrets."""

from collections.abc import Callable
from typing import Any

import pytest

from mcp_django.client.targets import SSE, Stdio, StreamableHTTP, Target, WebSocket

URL = "https://user:password@example.com:8443/mcp?key=secret"
SECRETS = ("user", "password", "secret", "token-value", "--api-key")


@pytest.mark.parametrize(
    "target",
    [
        StreamableHTTP(URL, headers={"Authorization": "token-value"}),
        SSE(URL, headers={"Authorization": "token-value"}),
        WebSocket(URL.replace("https", "wss"), headers={"Authorization": "token-value"}),
        Stdio("server", ["--api-key=secret"], env={"TOKEN": "token-value"}),
    ],
    ids=lambda target: target.kind,
)
def test_what_is_shown_of_a_target_holds_no_secret(target: Target) -> None:
    for text in (repr(target), str(target), f"{target}", target.shown, repr([target])):
        assert not [secret for secret in SECRETS if secret in text], text
    assert ("server" if isinstance(target, Stdio) else "example.com:8443/mcp") in repr(target)


@pytest.mark.parametrize("kind", [StreamableHTTP, SSE])
@pytest.mark.parametrize(
    "url",
    [
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
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_being_shown(kind: Callable[[Any], Any], url: Any) -> None:
    with pytest.raises(ValueError, match="the URL") as refused:
        kind(url)
    assert "secret" not in str(refused.value)


def test_sockets_have_urls_of_their_own() -> None:
    with pytest.raises(ValueError, match="ws:// or wss://"):
        WebSocket("https://example.com/")


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({"X-Key": "secret\r\nHost: evil"}, "the value of the header X-Key cannot be sent"),
        ({"X-Key": "secret "}, "cannot be sent"),
        ({"X-Key": "漢secret"}, "cannot be sent"),
        ({"X-Key": b"secret"}, "cannot be sent"),
        ({"X Key": "secret"}, "no name of a header"),
        ({"Host": "secret"}, "is set by the transport"),
        ({"Mcp-Session-Id": "secret"}, "is set by the transport"),
    ],
)
@pytest.mark.parametrize("kind", [StreamableHTTP, SSE])
def test_headers_that_cannot_be_sent_are_refused_without_their_values(
    kind: Callable[..., Any], headers: Any, said: str
) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        kind("https://example.com/mcp", headers=headers)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Stdio(""),
        lambda: Stdio("a\0b"),
        lambda: Stdio("server", "--flag value"),
        lambda: Stdio("server", ["a\0b"]),
        lambda: Stdio("server", [1]),
        lambda: Stdio("server", env={"": "x"}),
        lambda: Stdio("server", env={"A=B": "x"}),
        lambda: Stdio("server", env={"A": "x\0"}),
        lambda: Stdio("server", env={"A": 1}),
    ],
)
def test_what_no_process_can_be_started_with_is_refused(make: Callable[[], Stdio]) -> None:
    with pytest.raises(ValueError, match=r"command|args|variables"):
        make()


def test_targets_that_say_the_same_are_equal_and_keep_what_they_were_given() -> None:
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
