import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_django.protocol import meta

ALPHANUMERIC = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
LETTERS = ALPHANUMERIC[:52]


def edged(first: str, inside: str, last: str) -> st.SearchStrategy[str]:
    """Text whose first and last characters come from narrower alphabets than the rest."""
    longer = st.tuples(st.sampled_from(first), st.text(inside, max_size=8), st.sampled_from(last)).map("".join)
    return st.sampled_from(sorted(set(first) & set(last))) | longer


LABELS = edged(LETTERS, ALPHANUMERIC + "-", ALPHANUMERIC)
NAMES = st.just("") | edged(ALPHANUMERIC, ALPHANUMERIC + "-_.", ALPHANUMERIC)


@given(st.lists(LABELS, max_size=4), NAMES)
def test_a_key_made_by_the_grammar_is_valid(labels, name):
    key = f"{'.'.join(labels)}/{name}" if labels else name
    assert meta.is_valid_key(key)
    assert meta.is_reserved(key) == (len(labels) > 1 and labels[1].lower() in ("mcp", "modelcontextprotocol"))


@given(st.lists(LABELS, min_size=1, max_size=3), NAMES, st.sampled_from(" \n\x00é/:ß٣"), st.data())
def test_a_foreign_character_makes_a_key_invalid(labels, name, foreign, data):
    key = f"{'.'.join(labels)}/{name}"
    at = data.draw(st.integers(0, len(key)))
    assert not meta.is_valid_key(key[:at] + foreign + key[at:])


def test_a_key_outside_the_grammar_is_invalid(subtests: pytest.Subtests) -> None:
    cases = [
        "/a",
        "1a.b/c",
        "a..b/c",
        "a-/c",
        "-a/c",
        ".a/c",
        "a./c",
        "a_b/c",
        "-a",
        "a-",
        ".a",
        "a_",
        "a/b/c",
        "a/-",
        "a\n",
    ]
    for key in cases:
        with subtests.test(key=key):
            assert not meta.is_valid_key(key)
            assert not meta.is_reserved(key)


def test_a_prefix_is_reserved_by_its_second_label(subtests: pytest.Subtests) -> None:
    cases = ["io.modelcontextprotocol/x", "dev.mcp/x", "org.modelcontextprotocol.api/", "com.mcp.tools/x"]
    for key in cases:
        with subtests.test(key=key):
            assert meta.is_reserved(key)


def test_other_prefixes_are_free(subtests: pytest.Subtests) -> None:
    cases = ["com.example.mcp/x", "mcp/x", "com.example/mcp", "x", "mcp.dev/x", "a.mcpx/y"]
    for key in cases:
        with subtests.test(key=key):
            assert meta.is_valid_key(key)
            assert not meta.is_reserved(key)


def test_the_keys_of_the_protocol_are_reserved_and_ours_is_not():
    own = [meta.PROTOCOL_VERSION, meta.CLIENT_CAPABILITIES, meta.CLIENT_INFO, meta.LOG_LEVEL, meta.SERVER_INFO]
    assert all(meta.is_valid_key(key) and meta.is_reserved(key) for key in [*own, meta.SUBSCRIPTION_ID])
    bare = [meta.PROGRESS_TOKEN, meta.TRACEPARENT, meta.TRACESTATE, meta.BAGGAGE]
    assert all(meta.is_valid_key(key) and not meta.is_reserved(key) for key in [*bare, meta.TAGS_KEY])


def test_a_long_hostile_key_is_checked_fast():
    assert not meta.is_valid_key("a-" * 100_000)
    assert not meta.is_valid_key("a." * 100_000)
