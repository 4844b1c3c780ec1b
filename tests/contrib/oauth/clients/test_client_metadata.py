"""Metadata of clients: documents of real clients, and hostile JSON."""

import json
from typing import Any

import pytest

from mcp_django.contrib.oauth.clients.client_metadata import (
    DEFAULT_CLIENT_NAME,
    MAX_METADATA_BYTES,
    ClientMetadata,
    ClientMetadataRefused,
    read_document,
    read_json,
    read_registration,
)

SCHEMES = ("cursor",)
CALLBACK = "https://client.example/cb"
URL = "https://client.example/client.json"

VS_CODE = {
    "client_name": "Visual Studio Code",
    "client_uri": "https://code.visualstudio.com",
    "grant_types": ["authorization_code", "refresh_token", "urn:ietf:params:oauth:grant-type:device_code"],
    "response_types": ["code"],
    "redirect_uris": [
        "https://insiders.vscode.dev/redirect",
        "https://vscode.dev/redirect",
        "http://127.0.0.1/",
        "http://127.0.0.1:33418/",
    ],
    "scope": "mcp:read offline_access",
    "token_endpoint_auth_method": "none",
    "application_type": "native",
}
CURSOR = {
    "client_name": "Cursor",
    "redirect_uris": [
        "http://localhost:8787/callback",
        "https://www.cursor.com/agents/mcp/oauth/callback",
        "cursor://anysphere.cursor-mcp/oauth/callback",
    ],
    "grant_types": ["authorization_code", "refresh_token"],
    "response_types": ["code"],
    "token_endpoint_auth_method": "none",
}
CLAUDE_CODE = {
    "client_name": "Claude Code (example)",
    "redirect_uris": ["http://localhost:54212/callback"],
    "grant_types": ["authorization_code", "refresh_token"],
    "response_types": ["code"],
    "token_endpoint_auth_method": "none",
    "scope": None,
}
CLAUDE = {
    "client_name": "Claude",
    "redirect_uris": ["https://claude.ai/api/mcp/auth_callback"],
    "grant_types": ["authorization_code", "refresh_token", "urn:ietf:params:oauth:grant-type:jwt-bearer"],
    "response_types": ["code"],
    "token_endpoint_auth_method": "none",
    "client_uri": "https://claude.ai",
    "logo_uri": "https://claude.ai/images/logo.png",
}
CHATGPT = {
    "client_name": "ChatGPT",
    "redirect_uris": ["https://chatgpt.com/connector_platform_oauth_redirect"],
    "grant_types": ["authorization_code", "refresh_token"],
    "response_types": ["code"],
    "token_endpoint_auth_method": "private_key_jwt",
    "token_endpoint_auth_methods_supported": ["private_key_jwt", "none"],
    "jwks_uri": "https://chatgpt.com/oauth/jwks.json",
}
CODEX = {
    "client_name": "Codex",
    "redirect_uris": ["http://127.0.0.1/callback", "http://localhost/callback"],
    "grant_types": ["authorization_code", "refresh_token"],
    "response_types": ["code"],
    "token_endpoint_auth_method": "none",
    "application_type": "native",
}
REAL = {
    "VS Code": VS_CODE,
    "Cursor": CURSOR,
    "Claude Code": CLAUDE_CODE,
    "claude.ai": CLAUDE,
    "ChatGPT": CHATGPT,
    "Codex": CODEX,
}


def build_metadata(**members: Any) -> dict[str, Any]:
    return {"client_name": "A client", "redirect_uris": [CALLBACK], **members}


def read(**members: Any) -> ClientMetadata:
    return read_registration(build_metadata(**members), schemes=SCHEMES)


def test_a_real_client_is_registered_as_a_public_one_with_the_code_grant(subtests: pytest.Subtests) -> None:
    for name, given in REAL.items():
        with subtests.test(name):
            found = read_registration(given, schemes=SCHEMES)
            raised = found.build_response_members()
            assert found.is_public
            assert raised["redirect_uris"] == given["redirect_uris"]
            assert raised["grant_types"] == ["authorization_code", "refresh_token"]
            assert raised["response_types"] == ["code"]
            assert raised["token_endpoint_auth_method"] == "none"
            assert raised.get("application_type") == given.get("application_type")
            assert None not in raised.values()


def test_the_document_of_a_real_client_is_accepted(subtests: pytest.Subtests) -> None:
    for name, given in REAL.items():
        with subtests.test(name):
            found = read_document({**given, "client_id": URL}, url=URL, schemes=SCHEMES)
            assert found.name == given["client_name"]
            assert found.is_public


OTHER_GRANTS: list[list[str]] = [
    ["client_credentials"],
    ["password"],
    ["implicit"],
    ["refresh_token"],
    ["urn:ietf:params:oauth:grant-type:device_code"],
    ["urn:ietf:params:oauth:grant-type:jwt-bearer", "refresh_token"],
    [],
    ["Authorization_Code"],
]


def test_grant_types_without_the_code_grant_are_refused(subtests: pytest.Subtests) -> None:
    for grants in OTHER_GRANTS:
        with subtests.test(grants=grants), pytest.raises(ClientMetadataRefused, match="authorization_code"):
            read(grant_types=grants)


def test_response_types_without_code_are_refused(subtests: pytest.Subtests) -> None:
    for types in (["token"], [], ["id_token token"]):
        with subtests.test(types=types), pytest.raises(ClientMetadataRefused, match="response_types"):
            read(response_types=types)


def test_an_unsupported_authentication_method_is_refused(subtests: pytest.Subtests) -> None:
    for method in ("private_key_jwt", "tls_client_auth", "client_secret_jwt", "NONE"):
        with subtests.test(method=method), pytest.raises(ClientMetadataRefused, match="token_endpoint_auth_method"):
            read(token_endpoint_auth_method=method)


def test_a_client_without_an_authentication_method_gets_a_secret() -> None:
    assert read().auth_method == "client_secret_basic"
    assert read(token_endpoint_auth_method="client_secret_post").auth_method == "client_secret_post"


def test_a_web_application_has_no_loopback_redirects(subtests: pytest.Subtests) -> None:
    for uri in ("http://127.0.0.1:1/", "http://localhost/cb", "https://localhost/", "cursor://x/cb"):
        with subtests.test(uri=uri):
            with pytest.raises(ClientMetadataRefused) as raised:
                read(application_type="web", redirect_uris=[CALLBACK, uri])
            assert raised.value.code == "invalid_redirect_uri"
            assert read(application_type="native", redirect_uris=[CALLBACK, uri]).application_type == "native"


NO_REDIRECT_URIS: list[Any] = [
    None,
    [],
    "https://client.example/cb",
    {},
    [None],
    [1],
    [[CALLBACK]],
    [CALLBACK] * 30,
    [CALLBACK, ""],
]


def test_redirect_uris_are_a_short_array_of_uris(subtests: pytest.Subtests) -> None:
    for uris in NO_REDIRECT_URIS:
        with subtests.test(uris=uris):
            with pytest.raises(ClientMetadataRefused) as raised:
                read(redirect_uris=uris)
            assert raised.value.code == "invalid_redirect_uri"


def test_a_member_of_the_wrong_type_is_refused(subtests: pytest.Subtests) -> None:
    for name in (
        "grant_types",
        "response_types",
        "token_endpoint_auth_method",
        "application_type",
        "client_name",
        "client_uri",
    ):
        for value in (1, True, {}, [1], [None], [[]], 1.5):
            with subtests.test(name=name, value=value), pytest.raises(ClientMetadataRefused):
                read(**{name: value})


def test_null_counts_as_absent(subtests: pytest.Subtests) -> None:
    for name in ("grant_types", "response_types", "client_name", "application_type", "client_uri"):
        with subtests.test(name=name):
            assert read(**{name: None}).build_response_members().get("client_uri") is None


def test_a_client_without_a_name_has_a_placeholder() -> None:
    for name in (None, "", "  \u200b "):
        assert read(client_name=name).name == DEFAULT_CLIENT_NAME


NAMES: list[tuple[str, str]] = [
    ("  Two\n words\t", "Two words"),
    ("abc\u202egpj.exe", "abcgpj.exe"),
    ("\u2066isolated\u2069", "isolated"),
    ("zero\u200bwidth", "zerowidth"),
    ("bell\x07", "bell"),
    ("line\u2028break", "line break"),
    ("<b>Claude</b>", "<b>Claude</b>"),
    ("e\u0301", "é"),
    ("משלוח", "משלוח"),
    ("\ue000private", "private"),
]


def test_a_name_is_one_line_of_visible_characters(subtests: pytest.Subtests) -> None:
    for raw, shown in NAMES:
        with subtests.test(raw=raw):
            assert read(client_name=raw).name == shown


def test_a_name_that_is_too_long_is_refused() -> None:
    assert read(client_name="x" * 100)
    with pytest.raises(ClientMetadataRefused, match="client_name"):
        read(client_name="x" * 101)


UNSAFE_LINKS: list[str] = [
    "javascript:alert(1)",
    "http://client.example/",
    "https://user@client.example/",
    "https://client.example/\"onclick='x'",
    "https://[::1",
    "https://client.example/" + "a" * 600,
    "https://клиент.example/",
    "//client.example/",
]


def test_a_page_that_is_not_safe_to_link_to_is_left_out(subtests: pytest.Subtests) -> None:
    for link in UNSAFE_LINKS:
        with subtests.test(link=link):
            assert "client_uri" not in read(client_uri=link).build_response_members()


def test_a_document_names_its_own_url() -> None:
    for other in (None, "https://client.example/other.json", URL + "/", URL.upper(), [URL]):
        with pytest.raises(ClientMetadataRefused, match="client_id"):
            read_document(build_metadata(client_id=other), url=URL, schemes=SCHEMES)
    assert read_document(build_metadata(client_id=URL), url=URL, schemes=SCHEMES).auth_method == "none"


NO_PUBLIC_CLIENTS: list[tuple[dict[str, Any], str]] = [
    ({"client_secret": "s3cret"}, "client_secret"),
    ({"client_secret": None}, "client_secret"),
    ({"client_secret_expires_at": 0}, "client_secret"),
    ({"client_name": None}, "client_name"),
    ({"client_name": "\u200b"}, "client_name"),
    ({"token_endpoint_auth_method": "client_secret_basic"}, "none"),
    ({"token_endpoint_auth_method": "private_key_jwt"}, "token_endpoint_auth_method"),
    ({"redirect_uris": ["http://evil.example/cb"]}, "http"),
    ({"redirect_uris": None}, "redirect_uris"),
    ({"grant_types": ["client_credentials"]}, "authorization_code"),
]


def test_a_document_that_is_no_public_client_of_the_code_grant_is_refused(subtests: pytest.Subtests) -> None:
    for members, why in NO_PUBLIC_CLIENTS:
        with subtests.test(members=members), pytest.raises(ClientMetadataRefused, match=why):
            read_document(build_metadata(client_id=URL, **members), url=URL, schemes=SCHEMES)


NOT_TAKEN = {
    "nothing": b"",
    "no JSON": b"client_name=x",
    "an array": b"[]",
    "a string": b'"x"',
    "null": b"null",
    "a number of many digits": b'{"a": ' + b"9" * 10_000 + b"}",
    "NaN": b'{"a": NaN}',
    "infinity": b'{"a": -Infinity}',
    "a member twice": b'{"redirect_uris": ["https://a.example/"], "redirect_uris": ["https://b.example/"]}',
    "an inner member twice": b'{"a": {"b": 1, "b": 2}}',
    "deep arrays": b'{"a": ' + b"[" * 8000 + b"]" * 8000 + b"}",
    "deep objects": b'{"a":' * 2000 + b"1" + b"}" * 2000,
    "deep enough": b'{"a": ' + b"[" * 20 + b"]" * 20 + b"}",
    "NUL": b'{"client_name": "a\\u0000b"}',
    "NUL in a name": b'{"a\\u0000": 1}',
    "a lone surrogate": b'{"client_name": "\\ud800"}',
    "a lone surrogate deep down": b'{"a": [{"b": ["\\udfff"]}]}',
    "another charset": '{"client_name": "ü"}'.encode("latin-1"),
    "UTF-16": "{}".encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf{}",
    "too long": b'{"client_name": "' + b"x" * MAX_METADATA_BYTES + b'"}',
}


def test_malformed_json_is_refused_and_not_quoted(subtests: pytest.Subtests) -> None:
    for name, body in NOT_TAKEN.items():
        with subtests.test(name):
            with pytest.raises(ClientMetadataRefused) as raised:
                read_json(body)
            assert raised.value.description.isascii()
            assert "example" not in raised.value.description


def test_json_with_any_letters_is_accepted() -> None:
    assert read_json(json.dumps({"client_name": "ü 😀", "a": [{"b": 1.5}]}).encode()) == {
        "client_name": "ü 😀",
        "a": [{"b": 1.5}],
    }
