"""Redirect URIs: those of real clients, and those that are refused."""

import pytest

from mcp_django.contrib.oauth.redirects import (
    find_redirect_problem,
    get_display_host,
    is_loopback,
    is_native,
    is_private_use,
    is_registered,
    is_well_formed,
)

SCHEMES = ("cursor",)
REAL = [
    "https://claude.ai/api/mcp/auth_callback",
    "https://chatgpt.com/connector_platform_oauth_redirect",
    "https://vscode.dev/redirect",
    "https://insiders.vscode.dev/redirect",
    "http://127.0.0.1:33418/",
    "http://127.0.0.1/",
    "http://localhost:8787/callback",
    "http://localhost/callback",
    "http://[::1]:5000/cb",
    "https://www.cursor.com/agents/mcp/oauth/callback",
    "cursor://anysphere.cursor-mcp/oauth/callback",
    "cursor:/oauth",
    "https://host.example:8443/cb?tenant=1&x=%20",
    "https://xn--bcher-kva.example/cb",
    "https://host.example/@team/cb",
]
HOSTILE = {
    "http on a public host": "http://evil.example/cb",
    "http on a private address": "http://10.0.0.1/cb",
    "http on all addresses": "http://0.0.0.0/cb",
    "short loopback": "http://127.1/cb",
    "loopback as a number": "http://2130706433/cb",
    "loopback as a label": "http://localhost.evil.example/cb",
    "loopback as userinfo": "http://localhost@evil.example/cb",
    "loopback with a dot": "http://localhost./cb",
    "mapped loopback": "http://[::ffff:127.0.0.1]/cb",
    "a script": "javascript:alert(1)",
    "a script in capitals": "JavaScript:alert(1)",
    "data": "data:text/html,x",
    "a file": "file:///etc/passwd",
    "an unknown scheme": "evilapp://cb",
    "a scheme in capitals": "HTTPS://host.example/cb",
    "a scheme alone": "cursor:",
    "a scheme and slashes": "cursor://",
    "a fragment": "https://host.example/cb#f",
    "an empty fragment": "https://host.example/cb#",
    "userinfo": "https://user@host.example/cb",
    "userinfo of a scheme": "cursor://user@evil/cb",
    "a wildcard": "https://*.host.example/cb",
    "a wildcard in the path": "https://host.example/*",
    "two in one": "https://host.example/cb https://evil.example/",
    "a line break": "https://host.example/cb\r\nLocation: x",
    "a tab": "https://host.example/\tcb",
    "NUL": "https://host.example/\x00cb",
    "a backslash": "https://host.example\\@evil.example/cb",
    "letters of another alphabet": "https://h\u043est.example/cb",
    "a lone surrogate": "https://host.example/\ud800",
    "a broken escape": "https://host.example/%zz",
    "dot segments": "https://host.example/a/../cb",
    "escaped dot segments": "https://host.example/a/%2e%2E/cb",
    "escaped slashes around dots": "https://host.example/a%2f..%2fcb",
    "no host": "https:///cb",
    "no slashes": "https:host.example/cb",
    "an empty port": "https://host.example:/cb",
    "a port too high": "https://host.example:70000/cb",
    "a label without letters": "https://host..example/cb",
    "a broken IPv6 address": "https://[::1::2]/cb",
    "an open bracket": "https://[::1/cb",
    "relative": "/cb",
    "relative to a scheme": "//host.example/cb",
    "empty": "",
    "very long": "https://host.example/" + "a" * 2000,
}


def test_the_redirect_uris_of_real_clients_are_accepted(subtests: pytest.Subtests) -> None:
    for uri in REAL:
        with subtests.test(uri=uri):
            assert find_redirect_problem(uri, schemes=SCHEMES) is None


def test_an_ambiguous_redirect_uri_is_refused(subtests: pytest.Subtests) -> None:
    for name, uri in HOSTILE.items():
        with subtests.test(name):
            told = find_redirect_problem(uri, schemes=SCHEMES)
            assert told
            assert "evil" not in told


def test_a_redirect_uri_is_a_string(subtests: pytest.Subtests) -> None:
    for value in (None, 1, True, ["https://host.example/cb"], {"uri": "https://host.example/cb"}):
        with subtests.test(value=value):
            assert find_redirect_problem(value)


AMBIGUOUS: list[str] = [
    "http://127.0.0.1:99999/cb",
    "http://127.0.0.1:/cb",
    "http://127.0.0.1:x/cb",
    "http://127.0.0.1:1;script-src%20*/cb",
    "http://[::1]x/cb",
    "HTTP://127.0.0.1/cb",
    "https://host.example/ü",
    "cursor",
    "",
]


def test_a_uri_that_parsers_read_differently_is_not_well_formed(subtests: pytest.Subtests) -> None:
    for uri in AMBIGUOUS:
        with subtests.test(uri=uri):
            assert not is_well_formed(uri)
            assert all(map(is_well_formed, [*REAL, "http://intranet.example/cb"]))


def test_only_allowed_private_schemes_are_accepted() -> None:
    assert find_redirect_problem("cursor://x/cb")
    assert find_redirect_problem("com.example.app:/cb", schemes=["com.example.app"]) is None


def test_browser_schemes_cannot_be_allowed(subtests: pytest.Subtests) -> None:
    for scheme in ("javascript", "data", "https", "http", "file", "blob", "ws", "a b", "", "Cursor"):
        with subtests.test(scheme=scheme):
            assert not is_private_use(scheme)
            assert find_redirect_problem(f"{scheme}://evil.example/x", schemes=[scheme]) or scheme == "https"


def test_loopback_and_app_redirects_are_distinguished_from_the_web() -> None:
    local = ["http://127.0.0.1:1/", "http://localhost/cb", "https://localhost/cb", "http://[::1]/"]
    assert all(map(is_loopback, local))
    assert all(map(is_native, [*local, "cursor://x/cb"]))
    assert not is_loopback("cursor://localhost/cb")
    assert not any(map(is_native, ["https://claude.ai/cb", "https://localhost.evil.example/"]))


def test_a_redirect_uri_is_shown_by_its_destination() -> None:
    assert get_display_host("https://claude.ai/api/mcp/auth_callback") == "claude.ai"
    assert get_display_host("http://127.0.0.1:33418/") == "127.0.0.1:33418"
    assert get_display_host("cursor://anysphere.cursor-mcp/oauth/callback") == "cursor:"


REGISTERED = ["https://host.example:8443/cb?x=1", "http://127.0.0.1/cb", "http://localhost:3000/cb", "cursor://a/cb"]
SAME = [*REGISTERED, "http://127.0.0.1:33418/cb", "http://localhost/cb", "http://localhost:1/cb"]
DIFFERENT = [
    "https://HOST.example:8443/cb?x=1",
    "https://host.example:08443/cb?x=1",
    "https://host.example/cb?x=1",
    "https://host.example:8443/cb",
    "https://host.example:8443/CB?x=1",
    "https://127.0.0.1/cb",
    "http://127.0.0.1:1/cb/",
    "http://127.0.0.1:1",
    "http://127.0.0.2/cb",
    "http://127.0.0.1:1.evil.example/cb",
    "http://LOCALHOST:1/cb",
    "cursor://A/cb",
    "cursor://a:1/cb",
]


def test_redirect_uris_are_compared_exactly_except_for_the_port_of_loopback(
    subtests: pytest.Subtests,
) -> None:
    for expected, uris in ((True, SAME), (False, DIFFERENT)):
        for uri in uris:
            with subtests.test(uri=uri):
                assert is_registered(uri, REGISTERED) is expected
