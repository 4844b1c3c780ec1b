import base64
import io
from typing import Any

import pytest
from django.core.handlers.asgi import ASGIRequest
from hypothesis import assume, given
from hypothesis import strategies as st

from mcp_django.protocol.errors import HeaderMismatch
from mcp_django.protocol.headers import (
    HeaderParam,
    Headers,
    check_params,
    check_routing,
    decode_value,
    encode_value,
)

VERSION = "2026-07-28"
TEXT = st.text(st.characters(codec="utf-8")) | st.text("=?base64 \tYQé", max_size=14)
REGION = (HeaderParam(("region",), b"mcp-param-region"),)


def routing(
    *, name: bytes | None = b"add", method: bytes = b"tools/call", version: bytes = VERSION.encode()
) -> Headers:
    pairs = [(b"mcp-protocol-version", version), (b"mcp-method", method)]
    return Headers(pairs if name is None else [*pairs, (b"mcp-name", name)])


def sentinel(raw: bytes) -> bytes:
    return b"=?base64?" + base64.b64encode(raw) + b"?="


def test_headers_are_text_by_name_in_any_case() -> None:
    headers = Headers([(b"x-tenant", b"Stra\xdfe"), (b"host", b"a.example")])
    assert headers["X-Tenant"] == headers.get("x-tenant") == "Straße"
    assert "HOST" in headers
    assert "x-other" not in headers
    assert headers.get("→") is None
    assert headers == {"x-tenant": "Straße", "host": "a.example"} == dict(headers)
    assert headers == Headers.from_text({"X-Tenant": "Straße", "Host": "a.example"})
    assert dict(headers.without({b"host"})) == {"x-tenant": "Straße"}


def test_a_name_in_bytes_is_a_type_error() -> None:
    headers: Any = Headers([(b"x-tenant", b"acme")])
    for find in (headers.get, headers.__getitem__, headers.__contains__):
        with pytest.raises(TypeError, match="Names of headers are text"):
            find(b"x-tenant")


def test_values_of_a_repeated_header_are_joined_as_in_django() -> None:
    pairs = [(b"x-tenant", b"a"), (b"cookie", b"a=1"), (b"host", b"h"), (b"x-tenant", b"b"), (b"cookie", b"b=2")]
    headers = Headers(pairs)
    assert headers == {"x-tenant": "a,b", "cookie": "a=1; b=2", "host": "h"}
    assert headers.repeated == {b"x-tenant", b"cookie"}
    request = ASGIRequest({"type": "http", "method": "GET", "path": "/", "headers": pairs}, io.BytesIO())
    assert request.headers["X-Tenant"] == headers["X-Tenant"]
    assert Headers([(b"a", b"1")]).repeated == Headers().repeated == frozenset()


def test_the_representation_of_headers_has_no_values() -> None:
    assert repr(Headers([(b"authorization", b"Bearer secret"), (b"host", b"h")])) == "<Headers: authorization, host>"
    assert repr(Headers()) == "<Headers: none>"


@given(TEXT)
def test_any_text_is_encoded_and_decoded(text):
    assert decode_value(encode_value(text)) == text


@given(TEXT)
def test_an_encoded_value_is_valid_in_a_header_without_outer_blanks(text):
    value = encode_value(text)
    assert all(0x20 <= byte <= 0x7E for byte in value)
    assert value == value.strip()


def test_plain_text_is_not_encoded(subtests: pytest.Subtests) -> None:
    cases = ["", "a", "two words", "a=?base64?b", "=?BASE64?YQ==?=", "=?base64?YQ==", "YQ==?="]
    for text in cases:
        with subtests.test(text=text):
            assert encode_value(text) == text.encode()


def test_text_that_a_header_would_change_is_encoded(subtests: pytest.Subtests) -> None:
    cases = [" a", "a ", "\ta", "a\tb", "a\r\nb", "é", "\x7f", "=?base64?YQ==?=", "=?base64??="]
    for text in cases:
        with subtests.test(text=text):
            assert encode_value(text) == sentinel(text.encode())


@given(st.binary(max_size=40))
def test_any_bytes_decode_or_are_refused(value):
    try:
        decode_value(value)
    except HeaderMismatch:
        pass


def test_blanks_around_a_value_are_stripped(subtests: pytest.Subtests) -> None:
    for value in [b"  name  ", b"\tname", b"name\t "]:
        with subtests.test(value=value):
            assert decode_value(value) == "name"


def test_an_incomplete_sentinel_is_literal(subtests: pytest.Subtests) -> None:
    for value in [b"=?BASE64?YQ==?=", b"=?base64?YQ==", b"YQ==?=", b"=?base64?="]:
        with subtests.test(value=value):
            assert decode_value(value) == value.decode()


def test_a_malformed_sentinel_is_a_mismatch(subtests: pytest.Subtests) -> None:
    cases = [b"YQ", b"YQ=", b"YQ===", b"Y Q==", b"YQ==\n", b"Y-Q_", b"Y!==", b"YWI==", b"YR==", b"/w==", b"=", b"===="]
    for payload in cases:
        with subtests.test(payload=payload), pytest.raises(HeaderMismatch):
            decode_value(b"=?base64?" + payload + b"?=")


def test_illegal_bytes_are_a_mismatch(subtests: pytest.Subtests) -> None:
    for value in ["é".encode(), "é".encode("latin-1"), b"a\x00b", b"a\nb", b"\x7f"]:
        with subtests.test(value=value), pytest.raises(HeaderMismatch, match="bytes"):
            decode_value(value)


def test_headers_that_repeat_the_body_pass():
    check_routing(routing(), VERSION, "tools/call", "add")
    check_routing(routing(name=None, method=b"tools/list"), VERSION, "tools/list", None)


def test_blanks_around_routing_headers_are_ignored():
    headers = routing(name=b"  add\t", method=b" tools/call ", version=b"\t2026-07-28")
    check_routing(headers, VERSION, "tools/call", "add")


def test_a_name_header_on_a_method_without_a_name_is_ignored():
    check_routing(routing(name=b"whatever", method=b"tools/list"), VERSION, "tools/list", None)


@given(TEXT)
def test_any_name_passes_when_it_is_encoded(name):
    check_routing(routing(name=encode_value(name)), VERSION, "tools/call", name)


@given(TEXT, TEXT)
def test_a_header_never_passes_for_another_name(name, other):
    assume(name != other)
    with pytest.raises(HeaderMismatch, match="Mcp-Name"):
        check_routing(routing(name=encode_value(other)), VERSION, "tools/call", name)


def test_equal_bytes_of_another_encoded_name_do_not_match():
    """A name that looks like the sentinel must be encoded; sent as it is, it is decoded to another name."""
    with pytest.raises(HeaderMismatch, match="Mcp-Name"):
        check_routing(routing(name=b"=?base64?YQ==?="), VERSION, "tools/call", "=?base64?YQ==?=")
    check_routing(routing(name=b"=?base64?YQ==?="), VERSION, "tools/call", "a")


def test_equal_bytes_that_are_illegal_in_a_header_do_not_match():
    with pytest.raises(HeaderMismatch):
        check_routing(routing(name="né".encode()), VERSION, "tools/call", "né")


def test_a_missing_or_different_routing_header_is_named(subtests: pytest.Subtests) -> None:
    cases = [
        (routing(version=b"2025-11-25"), "MCP-Protocol-Version"),
        (routing(version=sentinel(VERSION.encode())), "MCP-Protocol-Version"),
        (routing(method=b"TOOLS/CALL"), "Mcp-Method"),
        (routing(method=sentinel(b"tools/call")), "Mcp-Method"),
        (routing(name=b"Add"), "Mcp-Name"),
        (routing(name=None), "Mcp-Name is missing"),
        (Headers([(b"mcp-method", b"tools/call"), (b"mcp-name", b"add")]), "MCP-Protocol-Version is missing"),
        (Headers([(b"mcp-protocol-version", VERSION.encode()), (b"mcp-name", b"add")]), "Mcp-Method is missing"),
    ]
    for headers, named in cases:
        with subtests.test(headers=headers, named=named), pytest.raises(HeaderMismatch, match=named):
            check_routing(headers, VERSION, "tools/call", "add")


def test_a_repeated_routing_header_is_a_mismatch_even_if_both_agree(subtests: pytest.Subtests) -> None:
    for name in [b"mcp-protocol-version", b"mcp-method", b"mcp-name"]:
        with subtests.test(name=name):
            good = routing()
            with pytest.raises(HeaderMismatch, match="more than once"):
                check_routing(Headers([*good.wire.items(), (name, good.wire[name])]), VERSION, "tools/call", "add")


def test_other_repeated_headers_are_ignored():
    check_routing(
        Headers([*routing().wire.items(), (b"accept", b"a"), (b"accept", b"b")]), VERSION, "tools/call", "add"
    )


def test_a_header_that_mirrors_its_argument_passes(subtests: pytest.Subtests) -> None:
    cases = [
        ("eu", b"eu"),
        ("eu", b" eu "),
        ("", b""),
        ("é", sentinel("é".encode())),
        ("42", b"42"),
        (True, b"true"),
        (False, b"false"),
        (42, b"42"),
        (42, b"42.0"),
        (42.0, b"42"),
        (42, b"4.2e1"),
        (-1, b"-1"),
        (0, b"0"),
        (2**53 - 1, b"9007199254740991"),
    ]
    for value, header in cases:
        with subtests.test(value=value, header=header):
            check_params(Headers([(b"mcp-param-region", header)]), REGION, {"region": value})


def test_a_header_that_differs_from_its_argument_is_named(subtests: pytest.Subtests) -> None:
    cases = [
        ("eu", b"us"),
        ("eu", b"EU"),
        ("42", b"42.0"),
        (True, b"True"),
        (True, b"1"),
        (1, b"true"),
        (42, b"43"),
        (42, b""),
        (42, b"4_2"),
        (42, b"+42"),
        (42, b"0x2a"),
        (42, b"42.5"),
        (42, b"forty-two"),
        (1, b"1e999999999"),
        (2**53, b"9007199254740993"),
        (["eu"], b"eu"),
        ({"a": 1}, b"a"),
    ]
    for value, header in cases:
        with (
            subtests.test(value=value, header=header),
            pytest.raises(HeaderMismatch, match="mcp-param-region differs"),
        ):
            check_params(Headers([(b"mcp-param-region", header)]), REGION, {"region": value})


@given(TEXT | st.booleans() | st.integers(-(2**53), 2**53))
def test_every_argument_passes_under_the_header_a_client_writes(value):
    text = value if isinstance(value, str) else str(value).lower()
    check_params(Headers([(b"mcp-param-region", encode_value(text))]), REGION, {"region": value})


def test_an_argument_without_its_header_is_a_mismatch():
    with pytest.raises(HeaderMismatch, match=r"mcp-param-region is missing; it repeats arguments\.region"):
        check_params(Headers(), REGION, {"region": "eu"})


def test_a_header_without_its_argument_is_a_mismatch(subtests: pytest.Subtests) -> None:
    for arguments in [{}, {"region": None}]:
        with subtests.test(arguments=arguments):
            with pytest.raises(HeaderMismatch, match=r"was sent, but arguments\.region is absent or null"):
                check_params(Headers([(b"mcp-param-region", b"eu")]), REGION, arguments)
            check_params(Headers(), REGION, arguments)


def test_a_repeated_parameter_header_is_a_mismatch():
    with pytest.raises(HeaderMismatch, match="more than once"):
        check_params(Headers([(b"mcp-param-region", b"eu")] * 2), REGION, {"region": "eu"})


def test_a_nested_argument_is_found_by_its_path(subtests: pytest.Subtests) -> None:
    cases = [{"where": {"region": "eu"}}, {"where": {"region": "us"}}, {"where": "eu"}, {}]
    for arguments in cases:
        with subtests.test(arguments=arguments):
            params = (HeaderParam(("where", "region"), b"mcp-param-region"),)
            headers = Headers([(b"mcp-param-region", b"eu")])
            if arguments == {"where": {"region": "eu"}}:
                check_params(headers, params, arguments)
            else:
                with pytest.raises(HeaderMismatch, match=r"arguments\.where\.region"):
                    check_params(headers, params, arguments)


def test_parameter_headers_that_the_tool_does_not_declare_are_ignored():
    check_params(Headers([(b"mcp-param-other", b"eu")]), REGION, {})
