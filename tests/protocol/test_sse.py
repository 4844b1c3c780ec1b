from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_django.protocol import sse
from tests.support.sse_decoder import Decoder, ServerSentEvent

LINES = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0"))
NAMES = LINES.filter(bool)
DATA = st.binary(max_size=40) | st.text("ab\r\n: ", max_size=12).map(str.encode)
PIECES = [
    b"data",
    b"event",
    b"id",
    b"retry",
    b":",
    b" ",
    b"\r",
    b"\n",
    b"\r\n",
    b"\xef\xbb\xbf",
    b"\0",
    b"7",
    b"x",
    b"\xff",
]
STREAMS = st.lists(st.sampled_from(PIECES), max_size=40).map(b"".join)


def feed_all(decoder: Decoder, chunks: list[bytes]) -> list[ServerSentEvent]:
    return [event for chunk in chunks for event in decoder.feed(chunk)]


def decode(*chunks: bytes) -> list[ServerSentEvent]:
    return feed_all(Decoder(), list(chunks))


def cut(stream: bytes, at: list[int]) -> list[bytes]:
    places = [0, *sorted(place % (len(stream) + 1) for place in at), len(stream)]
    return [stream[start:end] for start, end in pairwise(places)]


def joined(data: bytes) -> bytes:
    """Parse the lines of `data` like a receiver."""
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


@given(STREAMS, st.lists(st.integers(0, 200), max_size=8))
def test_any_chunking_gives_the_same_events(stream, at):
    whole, pieces, bytewise = Decoder(), Decoder(), Decoder()
    events = whole.feed(stream)
    assert [event for chunk in cut(stream, at) for event in pieces.feed(chunk)] == events
    assert [event for byte in stream for event in bytewise.feed(bytes([byte]))] == events
    assert whole.last_event_id == pieces.last_event_id == bytewise.last_event_id
    assert whole.retry == pieces.retry == bytewise.retry


@given(DATA, NAMES, st.none() | LINES, st.none() | st.integers(0, 10**9), st.lists(st.integers(0, 200), max_size=4))
def test_an_encoded_event_is_parsed_unchanged(data, name, id, retry, at):
    stream = sse.event(data, event=name, id=id, retry=retry)
    assert decode(*cut(stream, at)) == [ServerSentEvent(name, joined(data), id, retry)]


@given(st.lists(DATA, max_size=4))
def test_consecutive_events_are_parsed(several):
    stream = sse.KEEP_ALIVE.join(sse.event(data) for data in several)
    assert [event.data for event in decode(stream)] == [joined(data) for data in several]


def test_the_usual_event_is_two_lines():
    assert sse.event(b'{"a":1}') == b'event: message\ndata: {"a":1}\n\n'


def test_data_with_line_breaks_becomes_several_lines():
    assert sse.event(b"a\nb\r\nc\rd", id="7", retry=10) == (
        b"event: message\nid: 7\nretry: 10\ndata: a\ndata: b\ndata: c\ndata: d\n\n"
    )


def test_a_field_with_a_line_break_is_refused(subtests: pytest.Subtests) -> None:
    cases = [{"event": "a\nb"}, {"event": "a\rb"}, {"id": "a\ndata: x"}, {"id": "a\0b"}, {"retry": -1}]
    for wrong in cases:
        with subtests.test(wrong=wrong), pytest.raises(ValueError, match=r"event|retry"):
            sse.event(b"x", **wrong)


@given(st.text(st.characters(codec="utf-8", exclude_characters="\r\n")))
def test_a_comment_is_not_an_event(text):
    assert decode(b": %b\n\n" % text.encode(), sse.event(b"x")) == decode(sse.event(b"x"))


def test_the_keep_alive_is_a_comment():
    assert sse.KEEP_ALIVE.startswith(b":")
    assert decode(sse.KEEP_ALIVE * 3) == []


def test_each_kind_of_line_end_ends_a_line(subtests: pytest.Subtests) -> None:
    for end in [b"\n", b"\r", b"\r\n"]:
        with subtests.test(end=end):
            assert decode(b"data: a", end, b"data: b", end, end) == [ServerSentEvent("message", b"a\nb", None, None)]


def test_a_line_end_split_over_chunks_is_one():
    assert decode(b"data: a\r", b"\ndata: b\r", b"\n\r", b"\n") == [ServerSentEvent("message", b"a\nb", None, None)]


def test_a_byte_order_mark_is_skipped_at_the_start_only():
    assert decode(b"\xef", b"\xbb", b"\xbfdata: a\n\n") == [ServerSentEvent("message", b"a", None, None)]
    assert decode(b"\n\xef\xbb\xbfdata: a\n\n") == []


def test_lines_are_parsed_like_in_the_standard(subtests: pytest.Subtests) -> None:
    cases = [
        (b"data:a\n\n", [b"a"]),
        (b"data:  a\n\n", [b" a"]),
        (b"data\n\n", [b""]),
        (b"data:\n\n", [b""]),
        (b"data\ndata\n\n", [b"\n"]),
        (b"data: a\n", []),
        (b"event: x\n\n", []),
        (b"Data: a\n\n", []),
        (b"data : a\n\n", []),
        (b"unknown: a\ndata: b\n: comment\n\n", [b"b"]),
        (b"\n\n\ndata: a\n\n\n\ndata: b\n\n", [b"a", b"b"]),
    ]
    for stream, data in cases:
        with subtests.test(stream=stream, data=data):
            assert [event.data for event in decode(stream)] == data


def test_an_id_lasts_until_another_one():
    assert [event.id for event in decode(b"data: a\n\nid: 1\n\ndata: b\n\nid\ndata: c\n\n")] == [None, "1", ""]


def test_an_id_with_nul_is_ignored():
    decoder = Decoder()
    assert decoder.feed(b"id: 1\nid: a\0b\ndata: x\n\n") == [ServerSentEvent("message", b"x", "1", None)]


def test_a_retry_that_is_not_digits_is_ignored(subtests: pytest.Subtests) -> None:
    for value in [b"1.5", b"-1", b"+1", b"1s", b"", b" ", "٣".encode(), b"9" * 400]:
        with subtests.test(value=value):
            decoder = Decoder()
            assert decoder.feed(b"retry: 7\nretry: " + value + b"\ndata: x\n\n") == [
                ServerSentEvent("message", b"x", None, 7)
            ]
            assert decoder.retry == 7


def test_a_retry_alone_is_kept_and_is_not_an_event():
    decoder = Decoder()
    assert decoder.feed(b"retry: 300\n\ndata: x\n\n") == [ServerSentEvent("message", b"x", None, None)]
    assert decoder.retry == 300


def test_a_type_belongs_to_one_event():
    assert [event.event for event in decode(b"event: a\ndata: x\n\ndata: y\n\n")] == ["a", "message"]


def test_an_endless_event_is_refused(subtests: pytest.Subtests) -> None:
    cases = [b"data: " + b"x" * 200, b"data: x\n" * 200, b"x" * 200, b"data: " + b"x" * 200 + b"\n"]
    for stream in cases:
        with subtests.test(stream=stream):
            for size in (1, 7, len(stream)):
                chunks = [stream[start : start + size] for start in range(0, len(stream), size)]
                with pytest.raises(ValueError, match="larger than 100 bytes"):
                    feed_all(Decoder(max_event=100), chunks)


def test_an_endless_stream_of_small_events_is_parsed():
    decoder = Decoder(max_event=100)
    assert sum(len(decoder.feed(sse.event(b"x" * 50) + sse.KEEP_ALIVE)) for _ in range(100)) == 100


def test_a_long_line_in_small_chunks_takes_linear_time():
    decoder = Decoder()
    for _ in range(50_000):
        decoder.feed(b"x")
    assert decoder.feed(b"\n\n") == []


def test_an_incomplete_event_does_not_set_the_last_id() -> None:
    decoder = Decoder()
    decoder.feed(sse.with_id(b"one", b"{}"))
    decoder.feed(sse.with_id(b"two", b"{}")[:-1])
    assert decoder.last_event_id == "one"
    decoder.feed(b"\n")
    assert decoder.last_event_id == "two"


def test_an_event_without_data_sets_the_last_id_and_the_retry() -> None:
    decoder = Decoder()
    (event,) = decoder.feed(sse.priming(b"one", retry=250))
    assert (event.data, event.id, event.retry) == (b"", "one", 250)


def test_a_comment_reports_nothing_on_a_stream_with_ids() -> None:
    decoder = Decoder()
    stream = sse.with_id(b"one", b"{}") + sse.KEEP_ALIVE + sse.with_id(b"two", b"[]")
    assert [event.data for event in decoder.feed(stream)] == [b"{}", b"[]"]
    assert not sse.KEEP_ALIVE.endswith(b"\n\n")
