"""Host, Origin and CORS, without a request around them."""

import pytest

from mcp_django.protocol.errors import TransportRefusal
from mcp_django.protocol.headers import Headers
from mcp_django.transports import security
from mcp_django.transports.security import TransportSecurity


def guard(**given: object) -> TransportSecurity:
    options = {
        "hosts": ["example.com", ".tenant.example"],
        "trusted_origins": ["https://app.example.com", "https://*.pages.example"],
        "cors_origins": ["https://reader.example.com:8443"],
    }
    return TransportSecurity(**{**options, **given})  # type: ignore[arg-type]


def headers(host: bytes | None = b"example.com", origin: bytes | None = None, *more: tuple[bytes, bytes]) -> Headers:
    pairs = [(b"host", host), (b"origin", origin)]
    return Headers([*((name, value) for name, value in pairs if value is not None), *more])


def passes(found: Headers, checked: TransportSecurity | None = None) -> bool:
    try:
        (checked or guard()).check(found)
    except TransportRefusal as refusal:
        return refusal.status != 403
    return True


def test_the_host_is_one_of_the_allowed(subtests: pytest.Subtests) -> None:
    for host, expected in [
        (b"example.com", True),
        (b"EXAMPLE.com:8000", True),
        (b"a.tenant.example", True),
        (b"evil.com", False),
        (b"example.com.evil.com", False),
        (b"example.com@evil.com", False),
        (b"", False),
        (b"\xff", False),
        (None, False),
    ]:
        with subtests.test(host=host, expected=expected):
            assert passes(headers(host)) is expected


def test_hosts_have_the_form_of_allowed_hosts(subtests: pytest.Subtests) -> None:
    for hosts in [["*"], [".example.com"]]:
        with subtests.test(hosts=hosts):
            assert passes(headers(b"a.example.com"), guard(hosts=hosts))


def test_an_origin_is_trusted_or_absent(subtests: pytest.Subtests) -> None:
    for origin, expected in [
        (None, True),
        (b"https://pages.example", True),
        (b"https://example.com", True),
        (b"http://example.com", True),
        (b"https://app.example.com", True),
        (b"https://a.pages.example", True),
        (b"https://a.b.pages.example", True),
        (b"https://reader.example.com:8443", True),
        (b"http://localhost:3000", True),
        (b"http://127.0.0.1", True),
        (b"https://[::1]:9", True),
        (b"http://app.example.com", False),
        (b"https://app.example.com:444", False),
        (b"https://app.example.com.evil.com", False),
        (b"https://evilpages.example", False),
        (b"https://evil.com/.pages.example", False),
        (b"https://reader.example.com", False),
        (b"http://localhost.evil.com", False),
        (b"http://127.0.0.1.evil.com", False),
        (b"null", False),
        (b"", False),
        (b"https://evil.com", False),
        (b"https://app.example.com\n", False),
        (b"\xff", False),
    ]:
        with subtests.test(origin=origin, expected=expected):
            assert passes(headers(origin=origin)) is expected


def test_the_endpoint_s_own_origin_is_that_of_its_host_and_port() -> None:
    assert passes(headers(b"example.com:8000", b"http://example.com:8000"))
    assert not passes(headers(b"example.com:8000", b"http://example.com"))


def test_a_repeated_host_or_origin_is_refused_although_each_is_allowed(subtests: pytest.Subtests) -> None:
    for name in [b"host", b"origin"]:
        with subtests.test(name=name):
            value = {b"host": b"example.com", b"origin": b"https://app.example.com"}[name]
            found = headers(b"example.com", b"https://app.example.com", (name, value))
            assert passes(headers(b"example.com", b"https://app.example.com", (b"x-other", b"1"), (b"x-other", b"2")))
            assert not passes(found)


def test_results_are_cached_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security, "MAX_CACHED_VERDICTS", 3)
    checked = guard(hosts=["*"])
    for number in range(10):
        assert passes(headers(b"h%d.example" % number), checked)
        assert len(checked._verdicts) <= 3
    assert not passes(headers(origin=b"https://evil.com"), checked)
    assert not passes(headers(origin=b"https://evil.com"), checked)


def names(pairs: security.HeaderPairs) -> list[bytes]:
    return [name for name, _ in pairs]


def test_without_an_origin_there_are_no_cors_headers() -> None:
    assert guard().build_cors_headers(headers()) == ()


def test_only_an_allowed_origin_gets_cors_headers() -> None:
    allowed = dict(guard().build_cors_headers(headers(origin=b"https://reader.example.com:8443")))
    assert allowed[b"access-control-allow-origin"] == b"https://reader.example.com:8443"
    assert b"Mcp-Session-Id" in allowed[b"access-control-expose-headers"]
    assert allowed[b"vary"] == b"Origin"
    for origin in (b"https://app.example.com", b"http://localhost:3000", b"https://evil.com"):
        assert guard().build_cors_headers(headers(origin=origin)) == ((b"vary", b"Origin"),)


def test_pages_from_loopback_may_read_in_development() -> None:
    found = guard(development=True).build_cors_headers(headers(origin=b"http://localhost:3000"))
    assert (b"access-control-allow-origin", b"http://localhost:3000") in found


def test_a_preflight_of_an_allowed_origin_gets_methods_and_headers() -> None:
    asked = (b"access-control-request-headers", b"content-type, Mcp-Param-Region, mcp-param-a b, x-evil, mcp-param-b")
    found = dict(
        guard().build_preflight_headers(headers(b"example.com", b"https://reader.example.com:8443", asked), b"POST")
    )
    assert found[b"access-control-allow-methods"] == b"POST"
    allowed = found[b"access-control-allow-headers"].split(b", ")
    assert {b"Authorization", b"Mcp-Session-Id", b"mcp-param-region", b"mcp-param-b"} <= set(allowed)
    assert b"x-evil" not in allowed
    assert not any(b" " in name for name in allowed)


def test_a_preflight_of_another_origin_gets_the_methods_only() -> None:
    found = guard().build_preflight_headers(headers(origin=b"https://evil.com"), b"POST")
    assert names(found) == [b"vary", b"allow"]
    assert names(guard().build_preflight_headers(headers(), b"POST")) == [b"allow"]


def test_results_for_long_headers_are_not_cached() -> None:
    checked = guard()
    assert passes(headers(), checked)
    for number in range(3):
        assert not passes(headers(b"evil.com", b"https://" + b"x" * 300 + b"%d" % number), checked)
        assert not passes(headers(b"x" * 300), checked)
    assert len(checked._verdicts) == 1
