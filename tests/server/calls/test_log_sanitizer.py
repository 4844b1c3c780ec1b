"""Labels of calls in logs: bounded, on one line, without secrets."""

from typing import Any

import pytest

from mcp_django.models import Session as SessionRow
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.headers import Headers
from mcp_django.protocol.revisions import REVISIONS
from mcp_django.server.calls.call import Call, Connection
from mcp_django.server.calls.log_sanitizer import (
    MAX_LABEL_CHARACTERS,
    get_call_id_label,
    get_log_fields,
    get_principal_label,
    get_session_label,
    get_target_label,
    get_trace_id,
    sanitize_label,
    sanitize_uri,
)
from mcp_django.server.calls.message_queue import Outbox
from tests.server.client import HANDSHAKE, STATELESS, PipelineClient, make_principal, make_server

HOSTILE = [
    "line\nfeed",
    "carriage\rreturn",
    "\x1b[31mred",
    "\x00\x07\x7f\x85\x9b",
    "separators\u2028\u2029",
    "turned \u202e round",
    "half a \ud800 pair",
    "back\\slash",
    "\N{TAG LATIN SMALL LETTER A}",
]


def make_call(method: str, params: Any, *, version: str = STATELESS, id: Any = 1, name: str = "somebody") -> Call:
    peer = PipelineClient(make_server(), version=version, principal=make_principal(name=name))
    revision = REVISIONS[version]
    connection = Connection(peer.principal, headers=Headers(), session=peer.session)
    message = jsonrpc.Request(id, method, params)
    era = peer.pipeline.eras[revision.era]
    return Call(
        message,
        revision=revision,
        era=era,
        connection=connection,
        server=peer.server,
        outbox=Outbox(),
        capabilities={},
        client_info={},
        meta={},
    )


def test_unprintable_characters_are_escaped(subtests: pytest.Subtests) -> None:
    for text in HOSTILE:
        with subtests.test(text=text):
            shown = sanitize_label(text)
            assert shown.isprintable()
            assert shown.encode().decode("unicode_escape").encode("utf-16", "surrogatepass") == text.encode(
                "utf-16", "surrogatepass"
            )


def test_printable_characters_are_unchanged(subtests: pytest.Subtests) -> None:
    for text in ["", "add", "größe", "名前", "a b", "100%"]:
        with subtests.test(text=text):
            assert sanitize_label(text) == text


def test_long_texts_are_cut() -> None:
    assert sanitize_label("x" * MAX_LABEL_CHARACTERS) == "x" * MAX_LABEL_CHARACTERS
    assert sanitize_label("x" * 1_000_000) == "x" * MAX_LABEL_CHARACTERS + "…"
    assert len(sanitize_label("\n" * 1_000_000)) == 2 * MAX_LABEL_CHARACTERS + 1


def test_a_uri_is_shown_without_its_secrets(subtests: pytest.Subtests) -> None:
    cases = [
        ("note://static", "note://static"),
        ("https://user:password@example.com/a", "https://example.com/a"),
        ("https://example.com/a?token=secret", "https://example.com/a?…"),
        ("https://example.com/a#secret", "https://example.com/a?…"),
        ("https://u:p@example.com:80/@me?x=1#y", "https://example.com:80/@me?…"),
        ("mailto:somebody@example.com", "mailto:somebody@example.com"),
        ("http://[broken", "http://[broken"),
        ("note://a\nb", "note://a\\nb"),
        ("note://" + "x" * 500, "note://" + "x" * (MAX_LABEL_CHARACTERS - 7) + "…"),
        ("note://" + "x" * 5000 + "@host/?secret", "note://host/?…"),
        ("", ""),
    ]
    for uri, shown in cases:
        with subtests.test(uri=uri, shown=shown):
            assert sanitize_uri(uri) == shown


def test_the_target_of_a_call_is_its_name_or_uri(subtests: pytest.Subtests) -> None:
    cases = [
        ("tools/call", {"name": "add", "arguments": {"name": "secret"}}, "add"),
        ("prompts/get", {"name": "welcome"}, "welcome"),
        ("resources/read", {"uri": "note://x?secret"}, "note://x?…"),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": "welcome"}}, "welcome"),
        ("completion/complete", {"ref": {"type": "ref/resource", "uri": "note://{x}"}}, "note://{x}"),
        ("completion/complete", {"ref": "welcome"}, None),
        ("tools/list", {"cursor": "x"}, None),
        ("tools/list", None, None),
        ("tools/call", {"name": ["add"]}, None),
        ("tools/call", {"uri": "note://x"}, None),
        ("resources/read", {"uri": 7, "name": "x"}, None),
        ("no/such", {"name": "line\nfeed"}, "line\\nfeed"),
    ]
    for method, params, target in cases:
        with subtests.test(method=method, params=params, target=target):
            assert get_target_label(make_call(method, params)) == target


def test_the_principal_is_shown_by_its_key() -> None:
    assert get_principal_label(make_call("ping", None, name="ali\nce")) == "tests|ali\\nce|"


def test_a_session_is_shown_by_the_beginning_of_its_hash() -> None:
    shown = get_session_label(make_call("ping", None, version=HANDSHAKE))
    assert shown == SessionRow.hash("session")[:8]
    assert get_session_label(make_call("tools/list", None)) is None


def test_the_id_is_shown_as_text(subtests: pytest.Subtests) -> None:
    for id, shown in [(7, "7"), ("a\nb", "a\\nb"), ("x" * 200, "x" * MAX_LABEL_CHARACTERS + "…")]:
        with subtests.test(id=id, shown=shown):
            assert get_call_id_label(make_call("ping", None, id=id)) == shown


def test_the_trace_is_that_of_the_call_s_own_span_if_it_has_one() -> None:
    call = make_call("ping", None)
    assert get_trace_id(call) is None
    call = make_call("ping", None)
    call.meta["traceparent"] = f"00-{'a' * 32}-{'b' * 16}-01"
    assert get_trace_id(call) == "a" * 32
    call.record.trace_id = "c" * 32
    assert get_trace_id(call) == "c" * 32


def test_missing_fields_of_a_call_are_omitted() -> None:
    assert get_log_fields(make_call("tools/list", None)) == {
        "mcp_server": "default",
        "mcp_method": "tools/list",
        "mcp_principal": "tests|somebody|",
        "mcp_call_id": "1",
    }


def test_credentials_are_removed_from_malformed_uris(subtests: pytest.Subtests) -> None:
    cases = [
        "http://us\ter:secret@host/x",
        "http://user:se[cret@host/x",
        "http://user:secret@host\u2100/x",
        "//user:secret@host/x",
        "http://user:secret@at@host/x",
        f"http://user:{'secret' * 500}@host/x",
    ]
    for uri in cases:
        with subtests.test(uri=uri):
            shown = sanitize_uri(uri)
            assert "secret" not in shown
            assert "user" not in shown
            assert "host" in shown
