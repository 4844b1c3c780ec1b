"""Sealed tokens: they open for their binding only, unchanged and in time."""

import base64
import random
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InvalidParams
from mcp_django.runtime.sealing import TokenSealer
from mcp_django.server.ports import StateTooLarge

SEAL = TokenSealer(["first", "second"], purpose="state")
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=20), inner, max_size=5),
    max_leaves=20,
)
PAYLOADS = st.dictionaries(st.text(max_size=20), JSON, max_size=5)
FLAT = st.dictionaries(st.text(max_size=10), st.text(max_size=300), max_size=3)


def read_refusal(seal: TokenSealer, token: Any, binding: bytes = b"") -> str:
    """Return the text of the refusal."""
    with pytest.raises(InvalidParams) as caught:
        seal.unseal(token, binding)
    return str(caught.value)


@settings(deadline=None)
@given(PAYLOADS, st.binary(max_size=64))
def test_a_payload_survives_as_json(payload: dict[str, Any], binding: bytes) -> None:
    token = SEAL.seal(payload, binding, ttl=60)
    assert token.isascii()
    assert SEAL.unseal(token, binding) == jsonrpc.loads(jsonrpc.dumps(payload))


@settings(deadline=None)
@given(FLAT, st.data())
def test_any_changed_character_is_refused(payload: dict[str, Any], data: st.DataObject) -> None:
    token = SEAL.seal(payload, b"call", ttl=60)
    place = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.characters(codec="ascii").filter(lambda char: char != token[place]))
    read_refusal(SEAL, token[:place] + other + token[place + 1 :], b"call")


@settings(deadline=None)
@given(FLAT, st.data())
def test_any_flipped_bit_is_refused(payload: dict[str, Any], data: st.DataObject) -> None:
    token = SEAL.seal(payload, b"call", ttl=60)
    raw = bytearray(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    read_refusal(SEAL, base64.urlsafe_b64encode(bytes(raw)).rstrip(b"=").decode(), b"call")


@settings(deadline=None)
@given(st.binary(max_size=40), st.binary(max_size=40))
def test_another_binding_does_not_open(mine: bytes, other: bytes) -> None:
    token = SEAL.seal({"a": 1}, mine, ttl=60)
    if mine != other:
        read_refusal(SEAL, token, other)


@settings(deadline=None)
@given(st.one_of(st.text(), st.binary(), st.integers(), st.none(), st.lists(st.text()), st.floats(), st.booleans()))
def test_garbage_is_invalid_params(token: Any) -> None:
    read_refusal(SEAL, token)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_garbage_in_the_format_of_a_token_is_refused(raw: bytes) -> None:
    read_refusal(SEAL, base64.urlsafe_b64encode(b"\x01" + raw).rstrip(b"=").decode())


def test_a_shortened_or_lengthened_token_is_refused(subtests: pytest.Subtests) -> None:
    for cut in [1, 4, 20, 40]:
        with subtests.test(cut=cut):
            token = SEAL.seal({"a": 1}, b"", ttl=60)
            read_refusal(SEAL, token[:-cut])
            read_refusal(SEAL, token + "A" * cut)
            read_refusal(SEAL, token + "=" * cut)
            read_refusal(SEAL, f" {token}")


def test_a_token_of_an_older_secret_opens_and_a_new_one_uses_the_newest() -> None:
    old, both, new = (TokenSealer(secrets, purpose="state") for secrets in (["old"], ["new", "old"], ["new"]))
    assert both.unseal(old.seal({"a": 1}, b"", ttl=60), b"") == {"a": 1}
    assert new.unseal(both.seal({"a": 2}, b"", ttl=60), b"") == {"a": 2}
    read_refusal(new, old.seal({"a": 3}, b"", ttl=60))
    read_refusal(old, both.seal({"a": 4}, b"", ttl=60))


def test_a_repeated_secret_seals_and_opens() -> None:
    seal = TokenSealer(["same", "same"], purpose="state")
    assert seal.unseal(seal.seal({}, b"", ttl=60), b"") == {}


def test_a_token_of_another_purpose_does_not_open() -> None:
    cursors = TokenSealer(["first"], purpose="cursor")
    read_refusal(SEAL, cursors.seal({"a": 1}, b"", ttl=60))
    read_refusal(cursors, SEAL.seal({"a": 1}, b"", ttl=60))


def test_an_expired_token_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    token = SEAL.seal({}, b"", ttl=60)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 59)
    assert SEAL.unseal(token, b"") == {}
    monkeypatch.setattr(time, "time", lambda: now + 61)
    read_refusal(SEAL, token)


def test_every_refusal_has_the_same_text() -> None:
    token = SEAL.seal({}, b"", ttl=-1)
    texts = {
        read_refusal(SEAL, token),
        read_refusal(SEAL, "nonsense"),
        read_refusal(SEAL, None),
        read_refusal(SEAL, token, b"other"),
    }
    assert texts == {"Invalid or expired state"}


def test_a_token_is_never_longer_than_the_limit() -> None:
    seal = TokenSealer(["secret"], purpose="state", max_token_bytes=2048)
    assert len(seal.seal({"a": _noise(1200)}, b"", ttl=60)) <= 2048
    with pytest.raises(StateTooLarge):
        seal.seal({"a": _noise(4000)}, b"", ttl=60)
    assert seal.unseal(seal.seal({"a": "x" * 10_000}, b"", ttl=60), b"") == {"a": "x" * 10_000}
    with pytest.raises(StateTooLarge):
        seal.seal({"a": "x" * 17_000}, b"", ttl=60)


def _noise(length: int) -> str:
    """Generate text that hardly compresses, the same every time."""
    return random.Random(1).randbytes(length // 2).hex()


def test_a_token_that_inflates_beyond_the_limit_is_refused() -> None:
    generous, strict = (TokenSealer(["secret"], purpose="state", max_token_bytes=limit) for limit in (65536, 1024))
    token = generous.seal({"a": "x" * 100_000}, b"", ttl=60)
    assert len(token) < 1024
    read_refusal(strict, token)


def test_equal_payloads_make_different_tokens() -> None:
    assert SEAL.seal({"a": 1}, b"", ttl=60) != SEAL.seal({"a": 1}, b"", ttl=60)


def test_a_seal_without_a_secret_is_refused(subtests: pytest.Subtests) -> None:
    for secrets in [[], [""], ["good", ""]]:
        with subtests.test(secrets=secrets), pytest.raises(ValueError, match="SECRET_KEY"):
            TokenSealer(secrets, purpose="state")
