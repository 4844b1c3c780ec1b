"""Malformed requests: an error of the protocol, and never one of the server."""

import base64
import json
from typing import Any

import pytest
from django.db import DatabaseError
from django.test import Client

from mcp_django.auth import throttling
from mcp_django.contrib.oauth.tokens import credentials
from mcp_django.server.primitives.base import Rate
from tests.support.savepoints import rolled_back

from . import oauth_flow
from .oauth_flow import create_client, create_user, exchange, issue_code, post, read_json

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.contrib.oauth.urls")]
PATHS = ("/o/token/", "/o/revoke_token/", "/o/introspect/", "/token")


@pytest.fixture(autouse=True)
def protected(settings: Any) -> None:
    settings.MCP = oauth_flow.SETTINGS


def read_error(response: Any) -> dict[str, Any]:
    assert 400 <= response.status_code < 500, response.content
    assert response["Content-Type"] == "application/json"
    found: dict[str, Any] = json.loads(response.content)
    assert found["error"]
    return found


FORMS = {
    "nothing": "",
    "a NUL in the client": "client_id=a%00b&grant_type=authorization_code&code=x&token=x",
    "a NUL in the code": "client_id={client}&grant_type=authorization_code&code=a%00b&redirect_uri=https://a.example",
    "a NUL in the token": "client_id={client}&token=a%00b&grant_type=refresh_token&refresh_token=a%00b",
    "a NUL in a name": "client_id={client}&a%00b=1&token=x",
    "no UTF-8": "client_id=%ff%fe&grant_type=authorization_code&code=%ff&token=%ff",
    "a surrogate": "client_id=%ed%a0%80&grant_type=refresh_token&refresh_token=%ed%a0%80&token=%ed%a0%80",
    "a long client": "client_id=" + "x" * 300 + "&grant_type=authorization_code&code=x&token=x",
    "a long value": "client_id={client}&token=" + "x" * 9000,
    "a parameter twice": "client_id={client}&client_id={client}&grant_type=refresh_token&refresh_token=x&token=x",
    "a code twice": "client_id={client}&grant_type=authorization_code&code=a&code=b&token=x&token=y",
    "many fields": "&".join(f"f{n}=1" for n in range(1200)),
    "many resources": "client_id={client}&" + "&".join("resource=https://testserver/mcp" for _ in range(30)),
    "no form": "&&&=&=%&%zz=%zz",
    "letters of the world": "client_id=%F0%9F%A6%8A&grant_type=%F0%9F%A6%8A&code=x&token=%C3%BC",
    "a number for a grant": "client_id={client}&grant_type=1",
}


def test_malformed_forms_are_refused(subtests: pytest.Subtests) -> None:
    for name, form in FORMS.items():
        for path in PATHS:
            with subtests.test(name, path=path), rolled_back():
                response = post(path, form.replace("{client}", create_client().client_id))
                # To revoke an unknown token succeeds.
                if path != "/o/revoke_token/" or response.status_code != 200:
                    read_error(response)


CONTENT_TYPES: list[str] = [
    "application/json",
    "text/plain",
    "",
    "multipart/form-data; boundary=x",
    "application/x-www-form-urlencoded; charset=utf-16",
    "application/x-www-form-urlencoded; charset=nonsense",
]


def test_forms_of_other_types_are_refused(subtests: pytest.Subtests) -> None:
    for kind in CONTENT_TYPES:
        for path in PATHS:
            with subtests.test(kind=kind, path=path), rolled_back():
                # As bytes: the test client would look for the encoding.
                response = Client().generic("POST", path, b"grant_type=refresh_token", kind, secure=True)
                assert read_error(response)["error"] == "invalid_request"


def test_large_bodies_are_refused(subtests: pytest.Subtests) -> None:
    for path in PATHS:
        with subtests.test(path=path), rolled_back():
            assert post(path, "a=" + "x" * 70_000).status_code == 413
            assert post(path, "token=x", CONTENT_LENGTH="-1").status_code in (400, 413)


CREDENTIALS: list[str] = [
    "Basic",
    "Basic ",
    "Basic !!!",
    "Basic " + base64.b64encode(b"no colon").decode(),
    "Basic " + base64.b64encode(b"\xff:\xff").decode(),
    "Basic " + base64.b64encode(b"a\0b:c\0d").decode(),
    "Basic " + base64.b64encode(b"%00:%00").decode(),
    "Basic " + base64.b64encode(b"%ff:%ff").decode(),
    "Basic " + base64.b64encode(b"x" * 5000 + b":y").decode(),
    "Basic \u00fc\u00e9",
    "Bearer x",
    "Digest x",
    "x" * 9000,
]


def test_malformed_credentials_are_refused(subtests: pytest.Subtests) -> None:
    for header in CREDENTIALS:
        for path in PATHS:
            with subtests.test(header=header, path=path), rolled_back():
                form = "grant_type=refresh_token&refresh_token=x&token=x"
                assert read_error(post(path, form, HTTP_AUTHORIZATION=header))["error"] == "invalid_client"


def test_other_methods_are_refused(subtests: pytest.Subtests) -> None:
    for method in ("get", "put", "delete", "patch", "head"):
        with subtests.test(method=method):
            for path in PATHS:
                assert getattr(Client(), method)(path, secure=True).status_code == 405


def test_a_query_is_refused() -> None:
    form = {"client_id": create_client().client_id, "grant_type": "refresh_token", "refresh_token": "x"}
    assert read_json(post("/o/token/?grant_type=refresh_token", form), 400)["error"] == "invalid_request"


def test_errors_do_not_quote_the_request() -> None:
    response = post("/o/token/", {"client_id": "<script>", "grant_type": "<script>", "code": "<script>"})
    assert b"<script>" not in response.content


def test_repeated_failures_are_throttled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttling, "get_rate", lambda name: Rate.parse("3/h"))
    app, user = create_client(), create_user()
    for _ in range(3):
        read_json(exchange(app, "guess"), 400)
    response = exchange(app, issue_code(app, user))
    assert read_json(response, 429)["error"] == "temporarily_unavailable"
    assert int(response["Retry-After"]) > 0


def test_a_database_failure_is_temporarily_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any) -> None:
        raise DatabaseError("connection refused at 10.0.0.1")

    app = create_client()
    monkeypatch.setattr(credentials, "find_application", fail)
    response = exchange(app, "x")
    assert read_json(response, 503)["error"] == "temporarily_unavailable"
    assert b"10.0.0.1" not in response.content
    assert response["Retry-After"]


def test_credentials_of_a_client_have_no_secret_in_their_repr() -> None:
    assert "hush" not in repr(credentials.ClientCredentials("app", "hush"))


def test_failures_behind_an_unknown_proxy_are_not_throttled(settings: Any) -> None:
    settings.MCP = oauth_flow.SETTINGS | {"RATES": {"TOKEN_FAILURES": "3/h"}}
    form = {"grant_type": "refresh_token", "refresh_token": "x", "client_id": "nobody"}
    for _ in range(5):
        assert post("/o/token/", form, HTTP_X_FORWARDED_FOR="203.0.113.9").status_code == 401
