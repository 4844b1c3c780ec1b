"""Tokens taken apart before anything in them is believed."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_django.auth.external.jwt import is_jwt_shaped, parse_jwt
from mcp_django.auth.external.strict_json import MAX_JSON_DEPTH, MalformedInput, parse_object
from tests.auth.identity_provider import b64

HEADER = {"alg": "RS256", "typ": "at+jwt", "kid": "one"}

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=10,
)


def compact(header: Any, claims: Any, signature: bytes = b"signed") -> str:
    return ".".join(map(b64, (header, claims, signature)))


@given(header=st.dictionaries(texts, values, max_size=5), claims=st.dictionaries(texts, values, max_size=5))
def test_an_encoded_token_is_parsed(header: dict[str, Any], claims: dict[str, Any]) -> None:
    header = {name: value for name, value in header.items() if name not in ("crit", "jwk", "jku", "x5u", "b64")}
    parts = parse_jwt(compact(header, claims))
    assert (parts.header, parts.claims) == (header, claims)


@given(token=st.text(max_size=300) | st.from_regex(r"[A-Za-z0-9_-]{0,40}(\.[A-Za-z0-9_-]{0,40}){0,4}", fullmatch=True))
def test_any_text_is_parsed_or_malformed(token: str) -> None:
    is_jwt_shaped(token)
    try:
        parts = parse_jwt(token)
        assert is_jwt_shaped(token)
        assert isinstance(parts.type, str)
        assert isinstance(parts.algorithm, str)
    except MalformedInput:
        pass


@given(raw=st.binary(max_size=200) | values.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_a_json_object_or_malformed(raw: bytes) -> None:
    try:
        assert isinstance(parse_object(raw), dict)
    except MalformedInput:
        pass


@given(place=st.integers(0, 200), char=st.sampled_from("AZaz09-_.=+/ \n\0é"))
def test_an_altered_token_is_malformed_or_another(place: int, char: str) -> None:
    token = compact(HEADER, {"iss": "https://one.example", "sub": "ada"})
    place %= len(token)
    altered = token[:place] + char + token[place + 1 :]
    try:
        parts = parse_jwt(altered)
    except MalformedInput:
        return
    assert altered == token or altered.count(".") == 2
    assert set(parts.header)  # it was parsed


def test_two_tokens_are_never_parsed_alike() -> None:
    token = compact({"a": 1}, {"b": 2}, b"sign")
    assert token[-1] in "AQgw"  # two bits of the last letter count
    for last in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_":
        if last != token[-1]:
            other = token[:-1] + last
            try:
                parse_jwt(other)
            except MalformedInput:
                continue
            assert last in "AQgw"


AMBIGUOUS_JSON: list[bytes] = [
    b'{"exp": NaN}',
    b'{"exp": Infinity}',
    b'{"exp": -Infinity}',
    b'{"exp": 1e400}',
    b'{"exp": ' + b"9" * 5000 + b"}",
    b'{"exp": ' + b"9" * 41 + b"}",
    b'{"sub": "ada", "sub": "eve"}',
    b'{"a": {"sub": "ada", "sub": "eve"}}',
    b'{"sub": "ada\\u0000"}',
    b'{"su\\u0000b": "ada"}',
    b'{"sub": ["\\ud800"]}',
    b'{"sub": "\xff"}',
    b'\xef\xbb\xbf{"sub": "ada"}',
    b'{"sub": "ada"} {}',
    b'["sub"]',
    b'"sub"',
    b"null",
    b"",
    b"{",
    b'{"a": ' + b"[" * 3000 + b"]" * 3000 + b"}",
    b'{"a": ' + b"[" * MAX_JSON_DEPTH + b"]" * MAX_JSON_DEPTH + b"}",
    b"[" * 100_000,
]


def test_ambiguous_json_is_malformed(subtests: pytest.Subtests) -> None:
    for raw in AMBIGUOUS_JSON:
        with subtests.test(raw=raw), pytest.raises(MalformedInput):
            parse_object(raw)


NOT_COMPACT: list[str] = [
    "",
    ".",
    "..",
    "...",
    "a.b",
    "a.b.c.d",
    "a.b.c.d.e",
    f"{b64(HEADER)}.{b64({})}",
    f"{b64(HEADER)}.{b64({})}.{b64(b's')}=",
    f"{b64(HEADER)}=.{b64({})}.",
    f" {compact(HEADER, {})}",
    f"{compact(HEADER, {})}\n",
    f"{b64(HEADER)}..{b64(b's')}",
    f"{b64([])}.{b64({})}.{b64(b's')}",
    f"{b64(HEADER)}.{b64([])}.{b64(b's')}",
    f"{b64(HEADER)}.{b64(b'no json')}.{b64(b's')}",
    f"{b64(HEADER)}A.{b64({})}.{b64(b's')}",
    f"{b64(HEADER)}.{b64({})}.A",
]


def test_a_token_in_another_form_is_malformed(subtests: pytest.Subtests) -> None:
    for token in NOT_COMPACT:
        with subtests.test(token=token), pytest.raises(MalformedInput):
            parse_jwt(token)


def test_a_header_with_a_foreign_key_is_malformed(subtests: pytest.Subtests) -> None:
    for name in ("crit", "jwk", "jku", "x5u", "b64", "zip", "enc"):
        with subtests.test(name=name), pytest.raises(MalformedInput, match=name):
            parse_jwt(compact({**HEADER, name: None}, {}))


def test_the_id_of_a_key_is_text(subtests: pytest.Subtests) -> None:
    for kid in (1, ["one"], {"one": 1}, "x" * 513, True):
        with subtests.test(kid=kid), pytest.raises(MalformedInput):
            _ = parse_jwt(compact({"kid": kid}, {})).kid


def test_a_type_is_compared_as_a_media_type(subtests: pytest.Subtests) -> None:
    for typ in ("at+jwt", "AT+JWT", "application/at+jwt", "Application/AT+JWT"):
        with subtests.test(typ=typ):
            assert parse_jwt(compact({"typ": typ}, {})).type == "at+jwt"


def test_a_type_that_is_not_text_is_malformed() -> None:
    with pytest.raises(MalformedInput):
        _ = parse_jwt(compact({"typ": ["at+jwt"]}, {})).type


def test_opaque_tokens_do_not_look_like_one() -> None:
    for token in ("ya29.a0AfH6.SMBx", "0b1c.2d3e.4f5a", "opaque", "gho_16C7e42F292c6912E7", "v2.local.payload"):
        assert not is_jwt_shaped(token)


def test_a_broken_token_still_looks_like_one() -> None:
    assert is_jwt_shaped(compact(HEADER, {}))
    assert is_jwt_shaped("eyJhbGciOi.broken.sig")
