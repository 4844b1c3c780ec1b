import contextlib
import gc
import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InvalidParams, InvalidRequest, MCPError, ParseError, ResourceNotFound
from mcp_django.protocol.jsonrpc import Notification, Request, Response

TEXT = st.text(st.characters(codec="utf-8"))
IDS = st.integers(-(2**63), 2**64 - 1) | TEXT
LEAVES = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4), max_leaves=30
)
OBJECTS = st.dictionaries(TEXT, VALUES, max_size=4)


def depth_of(value):
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        return 1 + max(map(depth_of, inner), default=0)
    return 0


@given(IDS, TEXT, st.none() | OBJECTS)
def test_an_encoded_request_is_parsed_unchanged(id, method, params):
    read = jsonrpc.read(jsonrpc.decode(jsonrpc.request(id, method, params)))
    assert read == Request(id, method, params)
    assert type(read) is Request
    assert type(read.id) is type(id)


@given(TEXT, st.none() | OBJECTS)
def test_an_encoded_notification_is_parsed_unchanged(method, params):
    read = jsonrpc.read(jsonrpc.decode(jsonrpc.notification(method, params)))
    assert (type(read), read) == (Notification, Notification(method, params))


@given(IDS, VALUES)
def test_an_encoded_result_is_parsed_unchanged_spliced_or_not(id, value):
    for body in (jsonrpc.result(id, value), jsonrpc.splice(id, jsonrpc.dumps(value))):
        read = jsonrpc.read(jsonrpc.decode(body))
        assert (type(read), read) == (Response, Response(id, value, None))


@given(IDS, TEXT, VALUES)
def test_an_encoded_error_is_parsed_unchanged(id, message, data):
    problem = InvalidParams(message, data=data)
    read = jsonrpc.read(jsonrpc.decode(jsonrpc.error(id, problem)))
    body = {"code": -32602, "message": message} | ({} if data is None else {"data": data})
    assert read == Response(id, None, body)


def test_an_error_without_an_id_has_no_id_member():
    assert jsonrpc.loads(jsonrpc.error(None, ParseError())).keys() == {"jsonrpc", "error"}


def test_an_error_can_be_sent_under_the_code_of_the_revision():
    sent = jsonrpc.loads(jsonrpc.error(1, ResourceNotFound("a:b"), code=-32002))
    assert sent["error"] == {"code": -32002, "message": "Resource not found", "data": {"uri": "a:b"}}


def test_a_batch_is_an_array_of_messages():
    assert jsonrpc.loads(jsonrpc.batch([jsonrpc.result(1, {}), jsonrpc.result("1", {})])) == [
        {"jsonrpc": "2.0", "id": 1, "result": {}},
        {"jsonrpc": "2.0", "id": "1", "result": {}},
    ]
    assert jsonrpc.batch([]) == b"[]"


def test_a_body_that_is_not_json_in_utf8_is_a_parse_error(subtests: pytest.Subtests) -> None:
    cases = [b"", b" ", b"{", b'{"a":1}x', b"\xff", b'"\xc3"', b"NaN", b"'a'", b'"\\ud800"', b"\xef\xbb\xbf{}", b"[1,]"]
    for body in cases:
        with subtests.test(body=body), pytest.raises(ParseError):
            jsonrpc.decode(body)


@given(st.binary(max_size=300))
def test_any_bytes_decode_or_are_refused(body):
    try:
        expected = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError):
        expected = ...
    try:
        decoded = jsonrpc.decode(body)
    except (ParseError, InvalidRequest):
        return
    assert decoded == expected


def test_nesting_is_allowed_up_to_the_limit(subtests: pytest.Subtests) -> None:
    for depth, fits in [(63, True), (64, True), (65, False), (1000, False), (2000, False)]:
        for opening in ["[", '{"a":']:
            with subtests.test(depth=depth, fits=fits, opening=opening):
                closing = "]" if opening == "[" else "}"
                body = (opening * depth + "1" + closing * depth).encode()
                if fits:
                    assert depth_of(jsonrpc.decode(body)) == depth
                else:
                    with pytest.raises(InvalidRequest, match="nested deeper than 64 levels"):
                        jsonrpc.decode(body)


def test_endless_nesting_is_refused_without_recursion(subtests: pytest.Subtests) -> None:
    for opening in [b"[", b'{"":', b'[{"":', b'["[",']:
        with subtests.test(opening=opening), pytest.raises(InvalidRequest, match="nested"):
            jsonrpc.decode(opening * 200_000)


def test_the_smallest_object_of_each_depth_is_measured():
    """An object needs five bytes per level, so that short bodies need no measurement."""
    for limit in (1, 2, 5, 64):
        at_limit = b'{"":' * (limit - 1) + b"{}" + b"}" * (limit - 1)
        assert depth_of(jsonrpc.decode(at_limit, max_nesting=limit)) == limit
        with pytest.raises(InvalidRequest):
            jsonrpc.decode(b'{"":' + at_limit + b"}", max_nesting=limit)


def test_brackets_in_strings_and_side_by_side_are_not_nesting(subtests: pytest.Subtests) -> None:
    cases = [
        ["[" * 500, "{" * 500],
        {"a": '"' * 99 + "[" * 99},
        ["\\", "[" * 99],
        ["\\" * 7 + '"[' * 70],
        {"[" * 99: "]" * 99},
        [[]] * 500,
        [{"a": [1]}] * 100,
    ]
    for value in cases:
        with subtests.test(value=value):
            assert jsonrpc.decode(jsonrpc.dumps(value), max_nesting=depth_of(value)) == value


@given(VALUES, st.integers(0, 8))
def test_the_measured_depth_is_the_depth_of_the_value(value, limit):
    body = jsonrpc.dumps(value)
    if depth_of(value) <= limit:
        assert jsonrpc.decode(body, max_nesting=limit) == value
    else:
        with pytest.raises(InvalidRequest):
            jsonrpc.decode(body, max_nesting=limit)


def test_only_an_object_is_a_message(subtests: pytest.Subtests) -> None:
    for raw in [None, 1, "a", [], [{"jsonrpc": "2.0", "id": 1, "method": "ping"}]]:
        with subtests.test(raw=raw):
            with pytest.raises(InvalidRequest, match="object") as caught:
                jsonrpc.read(raw)
            assert caught.value.request_id is None


def test_an_id_is_text_or_an_integer_exactly(subtests: pytest.Subtests) -> None:
    for id in [None, True, False, 1.0, 1.5, [], {}]:
        with subtests.test(id=id):
            with pytest.raises(InvalidRequest, match="id must be") as caught:
                jsonrpc.read({"jsonrpc": "2.0", "id": id, "method": "ping"})
            assert caught.value.request_id is None


def test_a_broken_message_is_refused_under_its_id(subtests: pytest.Subtests) -> None:
    cases = [
        ({"id": 7, "method": "ping"}, "jsonrpc must be"),
        ({"jsonrpc": "1.0", "id": 7, "method": "ping"}, "jsonrpc must be"),
        ({"jsonrpc": 2.0, "id": 7, "method": "ping"}, "jsonrpc must be"),
        ({"jsonrpc": "2.0", "id": 7, "method": 1}, "method must be"),
        ({"jsonrpc": "2.0", "id": 7, "method": None, "result": {}}, "method must be"),
        ({"jsonrpc": "2.0", "id": 7, "method": "ping", "params": False}, "params must be"),
        ({"jsonrpc": "2.0", "id": 7, "method": "ping", "params": []}, "params must be"),
        ({"jsonrpc": "2.0", "id": 7, "method": "ping", "params": "a"}, "params must be"),
        ({"jsonrpc": "2.0", "id": 7}, "a message has"),
        ({"jsonrpc": "2.0", "id": 7, "result": 1, "error": {"code": 1, "message": "a"}}, "a message has"),
        ({"jsonrpc": "2.0", "id": 7, "error": None}, "a message has"),
        ({"jsonrpc": "2.0", "id": 7, "error": {"code": "1", "message": "a"}}, "a message has"),
        ({"jsonrpc": "2.0", "id": 7, "error": {"code": 1}}, "a message has"),
    ]
    for raw, problem in cases:
        with subtests.test(raw=raw, problem=problem):
            with pytest.raises(InvalidRequest, match=problem) as caught:
                jsonrpc.read(raw)
            assert caught.value.request_id == 7


def test_a_notification_with_bad_params_is_refused_without_an_id():
    with pytest.raises(InvalidRequest, match="params must be") as caught:
        jsonrpc.read({"jsonrpc": "2.0", "method": "a", "params": 1})
    assert caught.value.request_id is None


def test_integers_beyond_64_bits_are_no_ids():
    with pytest.raises(InvalidRequest, match="id must be"):
        jsonrpc.read(jsonrpc.decode(b'{"jsonrpc":"2.0","id":99999999999999999999999,"method":"ping"}'))


def test_a_null_result_is_a_result():
    assert jsonrpc.read({"jsonrpc": "2.0", "id": 1, "result": None}) == Response(1, None, None)


def test_unknown_members_are_ignored():
    assert jsonrpc.read({"jsonrpc": "2.0", "id": 1, "method": "ping", "extra": 1}) == Request(1, "ping", None)


@given(VALUES)
def test_any_value_is_read_or_refused(raw):
    try:
        jsonrpc.read(raw)
    except InvalidRequest:
        pass


@given(st.dictionaries(st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error"]), VALUES))
def test_anything_that_looks_like_a_message_is_read_or_refused(parts):
    id = parts.get("id")
    readable = id if type(id) in (int, str) else None
    try:
        seen = jsonrpc.read({"jsonrpc": "2.0"} | parts)
    except InvalidRequest as problem:
        seen = problem
    if isinstance(seen, Notification):
        assert "id" not in parts
    else:
        assert (seen.request_id if isinstance(seen, InvalidRequest) else seen.id) == readable


def test_digests_do_not_depend_on_the_order_of_keys():
    assert jsonrpc.dumps_sorted({"b": {"d": 1, "c": 2}, "a": 1}) == b'{"a":1,"b":{"c":2,"d":1}}'


def test_the_garbage_collector_is_restored(subtests: pytest.Subtests) -> None:
    cases_1 = [b'["%b"]' % (b"x" * 70_000), b'{"%b' % (b"x" * 70_000), b"[" * 70_000]
    for enabled in [True, False]:
        for body in cases_1:
            with subtests.test(enabled=enabled, body=body):
                gc.enable() if enabled else gc.disable()
                try:
                    with contextlib.suppress(MCPError):
                        jsonrpc.decode(body)
                    assert gc.isenabled() is enabled
                finally:
                    gc.enable()


def test_a_large_document_is_read_without_the_garbage_collector() -> None:
    collections: list[str] = []
    body = b"[%b]" % b",".join([b"[]"] * 100_000)
    gc.callbacks.append(lambda phase, info: collections.append(phase))
    try:
        document = jsonrpc.decode(body)
        during = len(collections)
    finally:
        gc.callbacks.pop()
    assert len(document) == 100_000
    assert during <= 4, "one may come before, and one after"


def test_null_params_are_absent_params() -> None:
    assert jsonrpc.read({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": None}) == Request(1, "ping", None)
    assert jsonrpc.read({"jsonrpc": "2.0", "method": "ping", "params": None}) == Notification("ping", None)


def test_text_is_decoded_like_bytes() -> None:
    assert jsonrpc.decode('{"a": ["ä"]}') == {"a": ["ä"]}
    with pytest.raises(InvalidRequest):
        jsonrpc.decode("[" * 100 + "]" * 100)
    for text in ("{", "\ud800"):
        with pytest.raises(ParseError):
            jsonrpc.decode(text)
    with pytest.raises(ValueError, match="Parse error"):
        jsonrpc.decode(b"{")


@pytest.mark.parametrize("encode", [jsonrpc.dumps, jsonrpc.dumps_sorted])
def test_lone_surrogates_are_replaced(encode: Callable[[object], bytes]) -> None:
    value = {"a\udcff": ["b\ud800", ("\ud83d\ude00", None)], "é": 1}
    assert jsonrpc.loads(encode(value)) == {"a\ufffd": ["b\ufffd", ["\ufffd\ufffd", None]], "é": 1}


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 10**4000, -(2**63), 2**64 - 1])
def test_an_integer_of_any_size_is_a_number(number: int) -> None:
    assert json.loads(jsonrpc.dumps({"a": [number, 1]})) == {"a": [number, 1]}


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "[" * 100_000 + "]" * 100_000])
def test_deep_nesting_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        jsonrpc.loads_exactly(text)


def test_a_value_without_a_form_in_json_is_a_type_error(subtests: pytest.Subtests) -> None:
    endless: list[object] = []
    endless.append(endless)
    for value in (object(), {1: 2}, ["\ud800", object()], 10**5000, endless):
        with subtests.test(), pytest.raises(TypeError):
            jsonrpc.dumps(value)
