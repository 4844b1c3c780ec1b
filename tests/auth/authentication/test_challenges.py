"""WWW-Authenticate values (RFC 6750, section 3)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_django.auth.authentication.challenges import build_challenge, build_insufficient_scope_challenge

METADATA = "https://host/.well-known/oauth-protected-resource/mcp"


def test_without_a_token_the_challenge_has_no_error() -> None:
    value = build_challenge(scopes=["mcp:read"], resource_metadata=METADATA)
    assert value == f'Bearer scope="mcp:read", resource_metadata="{METADATA}"'.encode()


def test_an_empty_challenge_has_a_parameter() -> None:
    assert build_challenge() == b'Bearer realm="mcp"'


def test_an_invalid_token_is_named_as_the_error() -> None:
    value = build_challenge(error="invalid_token", description="Expired", scopes=["b", "a"], resource_metadata=METADATA)
    expected = f'Bearer error="invalid_token", error_description="Expired", scope="a b", resource_metadata="{METADATA}"'
    assert value == expected.encode()


def test_a_missing_scope_names_all_scopes_of_the_operation_once() -> None:
    value = build_insufficient_scope_challenge(["shop:write", "mcp:read", "mcp:read"])
    assert value.startswith(b'Bearer error="insufficient_scope", error_description="')
    assert value.endswith(b'scope="mcp:read shop:write"')


DESCRIPTIONS: list[tuple[str, bytes]] = [
    ('a"b', rb"a\"b"),
    ("a\\b", rb"a\\b"),
    ("a\r\nSet-Cookie: b", b"a  Set-Cookie: b"),
    ("a\0b\x7fc", b"a b c"),
    ("Zürich", b"Z?rich"),
]


def test_the_url_of_metadata_keeps_its_query() -> None:
    url = "https://meta.example/document?tenant=a,b&v='2'"
    assert build_challenge(resource_metadata=url) == f'Bearer resource_metadata="{url}"'.encode()


def test_a_description_cannot_break_out_of_its_quotes(subtests: pytest.Subtests) -> None:
    for text, written in DESCRIPTIONS:
        with subtests.test(text=text):
            assert build_challenge(description=text) == b'Bearer error_description="' + written + b'"'


@settings(deadline=None)
@given(st.text())
def test_the_value_for_any_description_is_one_line_of_visible_ascii(text: str) -> None:
    value = build_challenge(error=text, description=text, scopes=[text], resource_metadata=text)
    assert all(0x20 <= byte <= 0x7E for byte in value)
