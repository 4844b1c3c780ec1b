"""Trace context: valid and malformed values, and the precedence of their sources."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_django.protocol.headers import Headers
from mcp_django.protocol.trace_context import TraceContext, find_carrier, is_state, parse, parse_baggage, parse_parent

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"
OTHER = f"00-{'a' * 32}-{'b' * 16}-00"


def trace_of(meta, headers=None):
    return parse(find_carrier(meta, headers))


def test_a_traceparent_is_read() -> None:
    trace = trace_of({"traceparent": PARENT})
    assert trace == TraceContext(trace_id=TRACE, span_id=SPAN, flags=1)
    assert trace is not None
    assert trace.sampled


def test_without_a_traceparent_there_is_no_trace() -> None:
    assert trace_of({}) is None
    assert trace_of({"tracestate": "a=1", "baggage": "a=1"}, Headers()) is None


def test_a_valid_traceparent(subtests: pytest.Subtests) -> None:
    cases = [
        (PARENT, 1),
        (f"00-{TRACE}-{SPAN}-00", 0),
        (f"00-{TRACE}-{SPAN}-03", 3),
        (f"00-{TRACE}-{SPAN}-ff", 3),  # the bits that version 00 does not define are not passed on
        (f"01-{TRACE}-{SPAN}-03", 1),  # of a version to come only `sampled` is known
        (f"cc-{TRACE}-{SPAN}-00-what-the-future-brings", 0),
        (f"fe-{TRACE}-{SPAN}-01-", 1),
    ]
    for text, flags in cases:
        with subtests.test(text=text, flags=flags):
            assert parse_parent(text) == (TRACE, SPAN, flags)


def test_a_malformed_traceparent_is_ignored(subtests: pytest.Subtests) -> None:
    cases = [
        "",
        "00",
        PARENT[:-1],
        PARENT + "0",
        PARENT + "-more",  # version 00 ends there
        PARENT + "\n",
        " " + PARENT,
        PARENT.upper(),
        PARENT.replace("-", "_"),
        f"ff-{TRACE}-{SPAN}-01",
        f"0x-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[:-1]}g-{SPAN}-01",
        f"00-{TRACE[:-1]}٣-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-0",
        f"01-{TRACE}-{SPAN}-01.more",
        f"01-{TRACE}-{SPAN}-01-\x07",
        f"01-{TRACE}-{SPAN}-01-" + "x" * 500,
    ]
    for text in cases:
        with subtests.test(text=text):
            assert parse_parent(text) is None
            assert trace_of({"traceparent": text}) is None


def test_a_traceparent_that_is_not_a_string_is_ignored(subtests: pytest.Subtests) -> None:
    for value in [None, 1, True, ["x"], {}, PARENT.encode()]:
        with subtests.test(value=value):
            assert find_carrier({"traceparent": value, "tracestate": value, "baggage": value}) == {}


def test_a_valid_tracestate(subtests: pytest.Subtests) -> None:
    cases = [
        "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE",
        "a=1 , b=2\t,c=3",
        "a=1,,b=2,",
        "fw529a3039@dt=FfffffFf",
        "1tenant@system=x",
        "a_-*/=~!#$%&'()*+-./:;<>?@[]^_`{|}",
        ",".join(f"k{n}=v" for n in range(32)),
        "k=" + "v" * 256,
        "k" * 256 + "=v",
    ]
    for text in cases:
        with subtests.test(text=text):
            assert is_state(text)
            trace = trace_of({"traceparent": PARENT, "tracestate": text})
            assert trace is not None
            assert trace.state == text


def test_a_malformed_tracestate_is_dropped_and_the_trace_kept(subtests: pytest.Subtests) -> None:
    cases = [
        "",
        ",",
        "a",
        "a=",
        "=1",
        "A=1",
        "1a=1",
        "a=1=2",
        "a=ü",
        "a=\x00",
        "a=1,a=2",
        "a b=1",
        "a@1=x",
        "a@b@c=1",
        "k=" + "v" * 257,
        "k" * 257 + "=v",
        ",".join(f"k{n}=v" for n in range(33)),
        ",".join(f"k{n}={'v' * 60}" for n in range(9)),
        "a=1\nb=2",
    ]
    for text in cases:
        with subtests.test(text=text):
            assert not is_state(text)
            trace = trace_of({"traceparent": PARENT, "tracestate": text})
            assert trace is not None
            assert (trace.trace_id, trace.state) == (TRACE, "")


def test_a_valid_baggage(subtests: pytest.Subtests) -> None:
    cases = [
        ("userId=alice", {"userId": "alice"}),
        ("a=1,b=2", {"a": "1", "b": "2"}),
        ("a = 1 ;p1;p2 = x , b=2", {"a": "1", "b": "2"}),
        ("serverNode=DF%2028", {"serverNode": "DF 28"}),
        ("a=%C3%BC", {"a": "ü"}),
        ("a=%ff", {"a": "\N{REPLACEMENT CHARACTER}"}),
        ("a=", {"a": ""}),
        ("a=b=c", {"a": "b=c"}),
        ("a=" + "x" * 8190, {"a": "x" * 8190}),
    ]
    for text, entries in cases:
        with subtests.test(text=text, entries=entries):
            assert parse_baggage(text) == entries
            trace = trace_of({"traceparent": PARENT, "baggage": text})
            assert trace is not None
            assert trace.baggage == entries
            assert trace.headers()["baggage"] == text


def test_a_malformed_baggage_is_dropped_and_the_trace_kept(subtests: pytest.Subtests) -> None:
    cases = ["", "a", "=1", "a=1,", "a=ü", "a=x y", 'a="1"', "a=1;", "a\n=1", "a=1\r\nx: y", "a=" + "x" * 8191]
    for text in cases:
        with subtests.test(text=text):
            assert parse_baggage(text) is None
            trace = trace_of({"traceparent": PARENT, "baggage": text})
            assert trace is not None
            assert trace.baggage == {}
            assert "baggage" not in trace.headers()


def test_a_trace_context_is_forwarded_unchanged() -> None:
    meta = {"traceparent": PARENT, "tracestate": "a=1", "baggage": "b=2;secret=no"}
    trace = trace_of(meta)
    assert trace is not None
    assert trace.headers() == trace.meta() == meta


def test_a_later_version_is_forwarded_as_version_00() -> None:
    trace = trace_of({"traceparent": f"cc-{TRACE}-{SPAN}-09-more"})
    assert trace is not None
    assert trace.headers() == {"traceparent": PARENT}


def test_headers_are_used_without_a_trace_in_meta() -> None:
    headers = Headers([(b"traceparent", b" " + PARENT.encode()), (b"tracestate", b"a=1"), (b"baggage", b"b=2")])
    trace = trace_of({}, headers)
    assert trace is not None
    assert (trace.trace_id, trace.state, trace.baggage) == (TRACE, "a=1", {"b": "2"})


def test_meta_wins_over_headers() -> None:
    headers = Headers([(b"traceparent", OTHER.encode()), (b"tracestate", b"other=1"), (b"baggage", b"from=header")])
    trace = trace_of({"traceparent": PARENT, "baggage": "from=meta"}, headers)
    assert trace is not None
    # A tracestate belongs to its traceparent.
    assert (trace.trace_id, trace.state, trace.baggage) == (TRACE, "", {"from": "meta"})


def test_headers_are_used_with_a_malformed_meta() -> None:
    headers = Headers([(b"traceparent", OTHER.encode()), (b"tracestate", b"other=1")])
    trace = trace_of({"traceparent": "nonsense", "tracestate": "a=1"}, headers)
    assert trace is not None
    assert (trace.trace_id, trace.state) == ("a" * 32, "other=1")


def test_a_repeated_traceparent_is_ignored() -> None:
    pair = (b"traceparent", PARENT.encode())
    assert trace_of({}, Headers([pair, pair])) is None


def test_repeated_list_headers_are_joined() -> None:
    parts = [(b"tracestate", b"a=1"), (b"baggage", b"x=1"), (b"tracestate", b"b=2"), (b"baggage", b"y=2")]
    trace = trace_of({}, Headers([(b"traceparent", PARENT.encode()), *parts]))
    assert trace is not None
    assert (trace.state, trace.baggage) == ("a=1,b=2", {"x": "1", "y": "2"})


def test_a_trace_context_cannot_be_changed() -> None:
    trace = trace_of({"traceparent": PARENT, "baggage": "a=1"})
    assert trace is not None
    with pytest.raises(TypeError):
        trace.baggage["a"] = "2"  # type: ignore[index]
    with pytest.raises(AttributeError):
        trace.trace_id = "x"  # type: ignore[misc]


@given(st.text(), st.text(), st.text(), st.binary())
def test_any_input_is_parsed_without_an_exception(parent: str, state: str, baggage: str, raw: bytes) -> None:
    headers = Headers([(b"traceparent", raw), (b"tracestate", raw), (b"baggage", raw)])
    found = find_carrier({"traceparent": parent, "tracestate": state, "baggage": baggage}, headers)
    assert all(text.isascii() and "\n" not in text for text in found.values())
    parse(found)


@given(st.from_regex(r"[0-9a-f]{32}", fullmatch=True), st.from_regex(r"[0-9a-f]{16}", fullmatch=True))
def test_a_formatted_trace_is_parsed_unchanged(trace_id: str, span_id: str) -> None:
    text = f"00-{trace_id}-{span_id}-01"
    trace = trace_of({"traceparent": text})
    assert (trace is None) == (not trace_id.strip("0") or not span_id.strip("0"))
    assert trace is None or trace.headers() == {"traceparent": text}
