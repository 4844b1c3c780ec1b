"""Invalid authorization requests: errors for the client, and errors for the user alone."""

from typing import Any

import pytest
from django.test import Client
from pytest_django.fixtures import Settings

from mcp_django.contrib.oauth import toolkit_compat
from mcp_django.contrib.oauth.models import ClientProfile
from mcp_django.models import ScopeGrant
from tests.contrib.oauth.oauth_client import (
    CHALLENGE,
    ISSUER,
    LOOPBACK,
    MCP,
    SCOPES,
    WEB,
    authorization_path,
    make_client,
    read_redirect,
)
from tests.support.savepoints import rolled_back

pytestmark = pytest.mark.django_db
YES = {"allow": "1", "granted": list(SCOPES)}


def is_refused_without_redirect(response: Any) -> bool:
    """Return True for an error page that redirects nowhere."""
    return response.status_code == 400 and "Location" not in response and b"Nothing was allowed" in response.content


DOUBTFUL: list[Any] = [
    {"client_id": None},
    {"client_id": "nobody"},
    {"client_id": ["nobody", "nobody"]},
    {"client_id": "a\0b"},
    {"client_id": "\x1b[0m"},
    {"client_id": "x" * 5000},
    {"client_id": "https://evil.example/client"},
    {"redirect_uri": "https://evil.example/cb"},
    {"redirect_uri": f"{WEB}/"},
    {"redirect_uri": f"{WEB}?x=1"},
    {"redirect_uri": f"{WEB}#x"},
    {"redirect_uri": WEB.replace("https", "http")},
    {"redirect_uri": WEB.upper()},
    {"redirect_uri": WEB.replace("client", "Client")},
    {"redirect_uri": WEB.replace("example", "example:0443")},
    {"redirect_uri": "https://client.example@evil.example/cb"},
    {"redirect_uri": "javascript:alert(1)"},
    {"redirect_uri": f"{WEB}\0"},
    {"redirect_uri": "//client.example/cb"},
    {"redirect_uri": "https://[::1"},
    {"redirect_uri": [WEB, WEB]},
    {"redirect_uri": [WEB, "https://evil.example/cb"]},
    {"response_type": ["code", "code"]},
    {"scope": ["airports:read", "airports:write"]},
    {"state": ["a", "b"]},
    {"code_challenge": [CHALLENGE, CHALLENGE]},
    {"code_challenge_method": ["S256", "plain"]},
    {"state": "a\0b"},
    {"state": "a\r\nLocation: https://evil.example"},
    {"scope": "airports:read\0"},
    {"resource": f"{MCP}\0"},
    {"resource": [MCP] * 21},
]


def test_a_request_of_an_invalid_client_is_not_redirected(browser: Client, subtests: pytest.Subtests) -> None:
    for changes in DOUBTFUL:
        for form in (None, {"allow": "1", "granted": list(SCOPES)}, {"cancel": "1"}):
            with subtests.test(changes=changes, form=form), rolled_back():
                asked = authorization_path(make_client(), **changes)
                answer = browser.get(asked) if form is None else browser.post(asked, form)
                assert is_refused_without_redirect(answer)
                assert "frame-ancestors 'none'" in answer["Content-Security-Policy"]
                assert not toolkit_compat.get_grant_model().objects.exists()


def test_an_invalid_encoding_is_refused(browser: Client) -> None:
    known = f"client_id={make_client().client_id}&redirect_uri=https%3A%2F%2Fclient.example%2Fcb"
    for query in ("client_id=%zz", "client_id=%ff%fe", "%", "&&&=", "client_id=%ED%A0%80", f"{known}&state=%00", ""):
        assert is_refused_without_redirect(browser.get(f"/o/authorize/?{query}")), query
    for query in ("state=%zz&response_type=%ff", "%zz=%zz", "scope=%F0%9F%98%80&response_type=code"):
        assert read_redirect(browser.get(f"/o/authorize/?{known}&{query}"))["iss"] == ISSUER


MISTAKES: list[tuple[Any, tuple[str, ...]]] = [
    ({"response_type": None}, ("invalid_request", "unsupported_response_type")),
    ({"response_type": "token"}, ("unauthorized_client", "unsupported_response_type")),
    ({"response_type": "code token"}, ("unauthorized_client", "unsupported_response_type")),
    ({"response_type": "none"}, ("unauthorized_client", "unsupported_response_type")),
    ({"code_challenge": None}, ("invalid_request",)),
    ({"code_challenge": "short"}, ("invalid_request",)),
    ({"code_challenge": "x" * 200}, ("invalid_request",)),
    ({"code_challenge": CHALLENGE[:-1] + "ß"}, ("invalid_request",)),
    ({"code_challenge_method": None}, ("invalid_request",)),
    ({"code_challenge_method": "plain"}, ("invalid_request",)),
    ({"scope": "nothing that:is"}, ("invalid_scope",)),
    ({"resource": "https://evil.example/mcp"}, ("invalid_target",)),
    ({"resource": f"{MCP}/other"}, ("invalid_target",)),
    ({"resource": "https://testserver"}, ("invalid_target",)),
    ({"resource": "nonsense"}, ("invalid_target",)),
    ({"resource": [MCP, "https://evil.example/mcp"]}, ("invalid_target",)),
]


def test_errors_of_a_known_client_are_redirected_to_it(browser: Client, subtests: pytest.Subtests) -> None:
    for changes, error in MISTAKES:
        for posted in (False, True):
            with subtests.test(changes=changes, posted=posted), rolled_back():
                asked = authorization_path(make_client(), **changes)
                answer = browser.post(asked, YES) if posted else browser.get(asked)
                query = read_redirect(answer)
                assert query["error"] in error
                assert (query["state"], query["iss"]) == ("st-1", ISSUER)
                assert "code" not in query
                assert not toolkit_compat.get_grant_model().objects.exists()


def test_an_error_without_a_state_has_none(browser: Client) -> None:
    assert "state" not in read_redirect(browser.post(authorization_path(make_client(), state=None), {"cancel": "1"}))
    query = read_redirect(browser.post(authorization_path(make_client(name="B"), state="a&b=c%20 ü+"), {"cancel": "1"}))
    assert query["state"] == "a&b=c%20 ü+"


def test_an_invalid_port_of_a_loopback_redirect_is_refused(browser: Client, subtests: pytest.Subtests) -> None:
    for port in ("99999", "", "x", "1;script-src%20*", "-1"):
        with subtests.test(port=port), rolled_back():
            answer = browser.get(
                authorization_path(make_client(LOOPBACK), redirect_uri=f"http://localhost:{port}/callback")
            )
            assert answer.status_code == 400
            assert "script-src" not in answer["Content-Security-Policy"]


def test_a_loopback_redirect_may_have_any_port(browser: Client, subtests: pytest.Subtests) -> None:
    for uri in ("http://localhost:1/callback", "http://localhost:65535/callback", LOOPBACK):
        with subtests.test(uri=uri), rolled_back():
            answer = browser.post(authorization_path(make_client(LOOPBACK), redirect_uri=uri), YES)
            assert "code" in read_redirect(answer, uri)
            assert toolkit_compat.get_grant_model().objects.get().redirect_uri == uri


def test_a_resource_may_be_spelled_in_several_ways_and_repeated(browser: Client) -> None:
    asked = authorization_path(make_client(), resource=["HTTPS://TestServer/mcp/", MCP])
    read_redirect(browser.post(asked, YES))
    assert toolkit_compat.get_grant_model().objects.get().resource == [MCP]


def test_the_only_resource_is_the_default(browser: Client, subtests: pytest.Subtests) -> None:
    for resource in (None, ""):
        with subtests.test(resource=resource), rolled_back():
            read_redirect(browser.post(authorization_path(make_client(), resource=resource), YES))
            assert toolkit_compat.get_grant_model().objects.get().resource == [MCP]


def test_a_scope_reserved_for_other_groups_is_not_offered(browser: Client) -> None:
    ScopeGrant.objects.create(scope="airports:write", groups=["pilots"])
    application = make_client()
    page = browser.get(authorization_path(application))
    assert b'value="airports:read"' in page.content
    assert b'value="airports:write"' not in page.content
    read_redirect(browser.post(authorization_path(application), YES))
    assert toolkit_compat.get_grant_model().objects.get().scope == "airports:read"


def test_a_scope_reserved_for_other_clients_is_not_offered(browser: Client) -> None:
    ScopeGrant.objects.create(scope="airports:write", clients=["https://claude.ai/*"])
    assert b'value="airports:write"' not in browser.get(authorization_path(make_client())).content


def test_a_user_who_holds_none_of_the_scopes_is_not_asked(browser: Client) -> None:
    ScopeGrant.objects.create(scope="airports:write", groups=["pilots"])
    query = read_redirect(browser.get(authorization_path(make_client(), scope="airports:write")))
    assert query["error"] == "invalid_scope"


def test_a_client_gets_only_its_permitted_scopes(browser: Client) -> None:
    page = browser.get(authorization_path(make_client(allowed_scopes=["airports:read"])))
    assert b'value="airports:write"' not in page.content


def test_a_scheme_that_is_no_longer_allowed_is_not_redirected_to(browser: Client, settings: Settings) -> None:
    uri = "zed://callback/x"
    assert is_refused_without_redirect(browser.post(authorization_path(make_client(uri), redirect_uri=uri), YES))


def test_other_methods_are_refused(browser: Client, subtests: pytest.Subtests) -> None:
    for method in ("put", "delete", "patch"):
        with subtests.test(method=method), rolled_back():
            assert getattr(browser, method)(authorization_path(make_client())).status_code == 405


def test_a_client_that_an_operator_blocked_is_unknown(browser: Client) -> None:
    application = make_client()
    ClientProfile.objects.update(blocked=True)
    assert is_refused_without_redirect(browser.get(authorization_path(application)))
    assert is_refused_without_redirect(browser.post(authorization_path(application), YES))


def test_a_client_that_asks_for_nothing_gets_the_required_scopes(
    browser: Client, settings: Settings, subtests: pytest.Subtests
) -> None:
    for scope in (None, "", " "):
        with subtests.test(scope=scope), rolled_back():
            settings.MCP = settings.MCP | {"SERVERS": {"default": {"REQUIRED_SCOPES": ["airports:read"]}}}
            answer = browser.post(
                authorization_path(make_client(), scope=scope), {"allow": "1", "granted": list(SCOPES)}
            )
            assert "code" in read_redirect(answer)
            assert toolkit_compat.get_grant_model().objects.get().scope == "airports:read"


def test_the_page_lists_indirectly_included_scopes(browser: Client, settings: Settings) -> None:
    scopes = settings.MCP["SCOPES"] | {"airports:admin": "Run airports"}
    implies = {"airports:admin": ["airports:write"], "airports:write": ["airports:read"]}
    settings.MCP = settings.MCP | {"SCOPES": scopes, "SCOPE_IMPLIES": implies}
    page = browser.get(authorization_path(make_client(), scope="airports:admin")).content.decode()
    assert "Includes: Look up airports, Change airports" in page
