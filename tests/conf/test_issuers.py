"""MCP["ISSUERS"]: valid and invalid values, and messages without secrets."""

from pathlib import Path
from typing import Any

import pytest
from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from mcp_django import conf
from mcp_django.conf.issuers import IssuerSettings

URL = "https://id.example"
ASKED = {"INTROSPECTION_URL": f"{URL}/introspect", "CLIENT_ID": "shop", "CLIENT_SECRET": "s3cret-words"}


def read(*entries: Any) -> tuple[IssuerSettings, ...]:
    with override_settings(MCP={"ISSUERS": list(entries)}):
        return conf.get_settings().issuers


def read_error(*entries: Any) -> str:
    """Return the message of get_settings() and of the system check, which must contain no secret."""
    with override_settings(MCP={"ISSUERS": list(entries)}):
        with pytest.raises(ImproperlyConfigured) as caught:
            conf.get_settings()
        checked = " ".join(message.msg for message in run_checks() if message.id == "mcp_django.E003")
    text = str(caught.value)
    assert text.splitlines()[0] in checked
    assert "s3cret" not in text + checked
    return text


def test_an_issuer_alone_is_enough() -> None:
    (issuer,) = read({"ISSUER": URL})
    assert issuer.has_keys
    assert (issuer.algorithms, issuer.link, issuer.require_type) == (("RS256", "ES256"), (), True)
    assert issuer.claims.subject == "sub"


def test_every_key_is_read(tmp_path: Path) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.write_text("")
    entry = {
        "ISSUER": f"{URL}/",
        "JWKS_URI": f"{URL}/keys",
        "ALGORITHMS": ["PS256", "EdDSA"],
        "AUDIENCES": ["api://shop"],
        "REQUIRE_TYPE": False,
        "LEEWAY": 5,
        "CLAIMS": {"SUBJECT": "oid", "SCOPES": ["scp", "roles"], "USERNAME": "upn", "EXTRA": ["tid"]},
        "SCOPES": {"Shop.Read": "read", "boss": ["read", "write"]},
        "LINK": ["email", "create"],
        "REQUIRE_USER": False,
        **ASKED,
        "CLIENT_AUTH": "post",
        "PREFIX": "op_",
        "INTROSPECTION_CACHE": 60,
        "CA_FILE": bundle,
    }
    (issuer,) = read(entry)
    assert issuer.issuer == f"{URL}/"
    assert issuer.audiences == {"": ("api://shop",)}
    assert (issuer.claims.subject, issuer.claims.scopes, issuer.claims.username) == ("oid", ("scp", "roles"), ("upn",))
    assert issuer.claims.email == ("email",)
    assert issuer.claims.extra == ("tid",)
    assert issuer.scopes == {"Shop.Read": ("read",), "boss": ("read", "write")}
    assert issuer.client_secret == "s3cret-words"
    assert issuer.ca_file == str(bundle)
    assert "s3cret" not in repr(issuer) + str(issuer)


def test_invalid_values_are_reported_with_their_path(subtests: pytest.Subtests) -> None:
    cases = (
        ({}, "", "needs an ISSUER"),
        ("s3cret", "", "must be a dict, not str"),
        ({"ISSUER": "http://id.example"}, '["ISSUER"]', "must be an https URL"),
        ({"ISSUER": "id.example"}, '["ISSUER"]', "must be an https URL"),
        ({"ISSUER": "https://"}, '["ISSUER"]', "must be an https URL"),
        ({"ISSUER": "https://me:s3cret@id.example"}, '["ISSUER"]', "must be an https URL"),
        ({"ISSUER": f"{URL}?tenant=1"}, '["ISSUER"]', "without a query"),
        ({"ISSUER": f"{URL}#x"}, '["ISSUER"]', "must be an https URL"),
        ({"ISSUER": f"{URL}\n"}, '["ISSUER"]', "must be an https URL"),
        ({"ISSUER": f"{URL}:port"}, '["ISSUER"]', "must be an https URL"),
        ({"ISSUER": f"{URL}/{'x' * 255}"}, '["ISSUER"]', "at most 255"),
        ({"ISSUER": URL, "JWKS_URI": "http://keys.example"}, '["JWKS_URI"]', "must be an https URL"),
        ({"ISSUER": URL, "JWKS_URI": URL, "DISCOVERY": URL}, '["DISCOVERY"]', "set only one of them"),
        ({"ISSUER": URL, "ALGORITHMS": ["HS256"]}, '["ALGORITHMS"]', "must be one of 'RS256'"),
        ({"ISSUER": URL, "ALGORITHMS": ["none"]}, '["ALGORITHMS"]', "must be one of 'RS256'"),
        ({"ISSUER": URL, "ALGORITHMS": []}, '["ALGORITHMS"]', "at least one algorithm"),
        ({"ISSUER": URL, "AUDIENCES": "api"}, '["AUDIENCES"]', "must be a list"),
        ({"ISSUER": URL, "AUDIENCES": {7: ["api"]}}, '["AUDIENCES"]', "alias of a server"),
        ({"ISSUER": URL, "LEEWAY": 3600}, '["LEEWAY"]', "from 0 to 300"),
        ({"ISSUER": URL, "LEEWAY": float("nan")}, '["LEEWAY"]', "from 0 to 300"),
        ({"ISSUER": URL, "LINK": ["staff"]}, '["LINK"]', "must be one of 'email'"),
        ({"ISSUER": URL, "LINK": "email"}, '["LINK"]', "must be a list"),
        ({"ISSUER": URL, "CLAIMS": {"SUBJECT": ["sub"]}}, '["CLAIMS"]["SUBJECT"]', "must be a string"),
        ({"ISSUER": URL, "CLAIMS": {"SCOPES": []}}, '["CLAIMS"]["SCOPES"]', "at least one claim"),
        ({"ISSUER": URL, "CLAIMS": 7}, '["CLAIMS"]', "must be a dict"),
        ({"ISSUER": URL, "SCOPES": ["read"]}, '["SCOPES"]', "must be a dict"),
        ({"ISSUER": URL, "SCOPES": {"x": "two words"}}, '["SCOPES"]', "must be a scope"),
        ({"ISSUER": URL, "CLIENT_SECRET": "s3cret"}, '["CLIENT_SECRET"]', "INTROSPECTION_URL"),
        ({"ISSUER": URL, **ASKED, "CLIENT_SECRET": None}, '["INTROSPECTION_URL"]', "requires a CLIENT_ID"),
        ({"ISSUER": URL, **ASKED, "CLIENT_SECRET": ["s3cret"]}, '["CLIENT_SECRET"]', "not list"),
        ({"ISSUER": URL, **ASKED, "PREFIX": "mcp_at_"}, '["PREFIX"]', "mcp_"),
        ({"ISSUER": URL, **ASKED, "PREFIX": "m"}, '["PREFIX"]', "mcp_"),
        ({"ISSUER": URL, **ASKED, "INTROSPECTION_CACHE": 61}, '["INTROSPECTION_CACHE"]', "from 0 to 60"),
        ({"ISSUER": URL, "PREFIX": "x_"}, '["PREFIX"]', "INTROSPECTION_URL"),
        ({"ISSUER": URL, "CA_FILE": "no/such/file"}, '["CA_FILE"]', "file of certificates"),
    )
    for entry, where, what in cases:
        with subtests.test(entry=entry, where=where, what=what):
            text = read_error(entry)
            assert text.startswith(f'MCP["ISSUERS"][0]{where} ')
            assert what in text


def test_values_shared_by_two_entries_are_reported() -> None:
    assert 'MCP["ISSUERS"][1]["ISSUER"] is the same as in an earlier entry' in read_error(
        {"ISSUER": URL}, {"ISSUER": URL}
    )
    one, two = {"ISSUER": URL, **ASKED}, {"ISSUER": f"{URL}/two", **ASKED}
    assert 'MCP["ISSUERS"][1]["PREFIX"] must distinguish' in read_error(one, two)
    assert 'MCP["ISSUERS"][1]["PREFIX"] must distinguish' in read_error({**one, "PREFIX": "a"}, {**two, "PREFIX": "ab"})
    assert len(read({**one, "PREFIX": "a_"}, {**two, "PREFIX": "b_"})) == 2


def test_a_list_is_a_list() -> None:
    with (
        override_settings(MCP={"ISSUERS": {"ISSUER": URL}}),
        pytest.raises(ImproperlyConfigured, match="list of dicts"),
    ):
        conf.get_settings()


def test_a_misspelt_key_is_reported_and_the_issuer_kept() -> None:
    with override_settings(MCP={"ISSUERS": [{"ISSUER": URL, "AUDIENCE": ["s3cret"]}]}):
        assert [issuer.issuer for issuer in conf.get_settings().issuers] == [URL]
        (problem,) = conf.get_problems()
        assert (problem.path, problem.suggestion) == ('MCP["ISSUERS"][0]["AUDIENCE"]', "AUDIENCES")


def test_issuers_need_https_except_on_this_machine(subtests: pytest.Subtests) -> None:
    for url in ("http://127.0.0.1:8000", "http://localhost:8000/realm", "http://[::1]:8000"):
        with subtests.test(url=url):
            assert read({"ISSUER": url, "JWKS_URI": url})[0].issuer == url

    for url in ("http://localhost.example", "http://127.0.0.1.example", "http://10.0.0.1"):
        with subtests.test(url=url):
            assert "https" in read_error({"ISSUER": url})
