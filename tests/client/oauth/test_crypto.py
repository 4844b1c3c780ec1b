"""A sealed value opens at its own place only, and cannot be read elsewhere."""

import base64

import pytest
from pytest_django.fixtures import Settings

from mcp_django.client.oauth.crypto import MAX_SEALED_LENGTH, hash_parts, seal, unseal
from mcp_django.crypto import UnsealError

PLACE = ("github", "https://mcp.example/mcp", "user 1", "https://id.example")


def test_a_sealed_value_opens_at_its_place() -> None:
    sealed = seal(b"s3cret", PLACE, purpose="grant")
    assert unseal(sealed, PLACE, purpose="grant") == (b"s3cret", False)
    assert b"s3cret" not in base64.urlsafe_b64decode(sealed)
    assert seal(b"s3cret", PLACE, purpose="grant") != sealed


def test_a_sealed_value_opens_at_no_other_place(subtests: pytest.Subtests) -> None:
    for number in range(len(PLACE)):
        with subtests.test(number=number):
            sealed = seal(b"s3cret", PLACE, purpose="grant")
            elsewhere = (*PLACE[:number], PLACE[number] + "2", *PLACE[number + 1 :])
            with pytest.raises(UnsealError):
                unseal(sealed, elsewhere, purpose="grant")


def test_parts_of_a_place_are_separated() -> None:
    sealed = seal(b"s3cret", ("ab", "c"), purpose="grant")
    with pytest.raises(UnsealError):
        unseal(sealed, ("a", "bc"), purpose="grant")
    assert hash_parts("ab", "c") != hash_parts("a", "bc") != hash_parts("abc")


def test_a_sealed_value_opens_for_its_purpose_only() -> None:
    sealed = seal(b"s3cret", PLACE, purpose="grant")
    with pytest.raises(UnsealError):
        unseal(sealed, PLACE, purpose="flow")


def test_a_former_secret_opens_and_is_reported(settings: Settings) -> None:
    sealed = seal(b"s3cret", PLACE, purpose="grant")
    settings.SECRET_KEY_FALLBACKS, settings.SECRET_KEY = [settings.SECRET_KEY], "another"
    assert unseal(sealed, PLACE, purpose="grant") == (b"s3cret", True)
    settings.SECRET_KEY_FALLBACKS = []
    with pytest.raises(UnsealError):
        unseal(sealed, PLACE, purpose="grant")


def test_every_byte_counts() -> None:
    raw = base64.urlsafe_b64decode(seal(b"s3cret", PLACE, purpose="grant"))
    for at in range(len(raw)):
        changed = raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]
        with pytest.raises(UnsealError):
            unseal(base64.urlsafe_b64encode(changed).decode(), PLACE, purpose="grant")


def test_an_invalid_sealed_value_is_refused(subtests: pytest.Subtests) -> None:
    for text in ["", "x", "é", "A" * 8, "AQ" * MAX_SEALED_LENGTH, "=" * 40, "A" * 60]:
        with subtests.test(text=text), pytest.raises(UnsealError):
            unseal(text, PLACE, purpose="grant")
