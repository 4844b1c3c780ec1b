"""The keys of an identity provider: fetched when needed, seldom, within bounds, and kept while it is down."""

import asyncio
import itertools
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import async_to_sync

from mcp_django.auth.external import http
from mcp_django.auth.external.jwks import (
    MAX_AGE_SECONDS,
    MAX_STALE_SECONDS,
    MIN_FETCH_INTERVAL_SECONDS,
    KeySet,
    KeysUnavailable,
    PublicKey,
    build_discovery_urls,
)
from tests.auth.identity_provider import Provider, certificate, new_key, public, read_issuers, serving
from tests.support.clock import Clock
from tests.support.waiting import WAIT_SECONDS, eventually


@pytest.fixture
def provider() -> Iterator[Provider]:
    with serving() as provider:
        yield provider


def keyset(provider: Provider, **options: Any) -> KeySet:
    options = options or {"JWKS_URI": f"{provider.origin}/keys"}
    return KeySet(read_issuers({"ISSUER": provider.issuer, **options})[0])


def find(keys: KeySet, kid: str | None = "RS256-0", algorithm: str = "RS256") -> PublicKey | None:
    return async_to_sync(keys.find)(kid, algorithm)


def test_keys_are_fetched_once_and_cached(provider: Provider) -> None:
    keys = keyset(provider)
    assert find(keys) is find(keys) is not None
    assert provider.count() == 1


def test_unknown_key_ids_cause_one_fetch_per_minute(provider: Provider, clock: Clock) -> None:
    keys = keyset(provider)
    find(keys)
    clock.move(MIN_FETCH_INTERVAL_SECONDS + 1)
    for number in range(50):
        assert find(keys, f"unknown-{number}") is None
    assert provider.count() == 2
    assert find(keys) is not None
    clock.move(MIN_FETCH_INTERVAL_SECONDS - 2)
    assert find(keys, "unknown") is None
    assert provider.count() == 2


def test_an_unknown_key_id_fetches_the_keys(provider: Provider, clock: Clock) -> None:
    keys = keyset(provider)
    find(keys)
    provider.keys.append(public(new_key("RS256", 1)))
    clock.move(MIN_FETCH_INTERVAL_SECONDS + 1)
    assert find(keys, "RS256-1") is not None
    assert provider.count() == 2


def test_a_removed_key_expires(provider: Provider, clock: Clock) -> None:
    keys = keyset(provider)
    assert find(keys) is not None
    provider.keys = [public(new_key("RS256", 1))]
    clock.move(MAX_AGE_SECONDS - 1)
    assert find(keys) is not None
    clock.move(2)
    assert find(keys) is None
    assert find(keys, "RS256-1") is not None


def test_keys_are_kept_while_the_provider_is_unavailable_for_a_limited_time(
    provider: Provider, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    keys = keyset(provider)
    find(keys)
    provider.answers["/keys"] = lambda: (500, {}, {})
    clock.move(MAX_AGE_SECONDS + 1)
    assert find(keys) is not None
    assert find(keys) is not None
    assert provider.count() == 2  # once a minute here too
    assert "500" in caplog.text
    clock.move(MAX_STALE_SECONDS - MAX_AGE_SECONDS - 3)
    assert find(keys) is not None
    clock.move(3)
    with pytest.raises(KeysUnavailable):
        find(keys)


def test_an_unknown_key_id_without_a_response_is_no_refusal(provider: Provider, clock: Clock) -> None:
    keys = keyset(provider)
    find(keys)
    provider.answers["/keys"] = lambda: (503, {}, {})
    clock.move(MIN_FETCH_INTERVAL_SECONDS + 1)
    for _ in range(2):
        with pytest.raises(KeysUnavailable):
            find(keys, "perhaps-new")
    assert find(keys) is not None


def test_a_failed_fetch_is_retried_after_a_minute(provider: Provider, clock: Clock) -> None:
    good, provider.answers["/keys"] = provider.answers["/keys"], lambda: (502, {}, {})
    keys = keyset(provider)
    for _ in range(3):
        with pytest.raises(KeysUnavailable):
            find(keys)
    assert provider.count() == 1
    provider.answers["/keys"] = good
    clock.move(MIN_FETCH_INTERVAL_SECONDS + 1)
    assert find(keys) is not None


def test_concurrent_callers_share_one_fetch(provider: Provider) -> None:
    keys, held = keyset(provider), provider.hold("/keys")

    async def several() -> list[PublicKey | None]:
        return await asyncio.gather(*(keys.find("RS256-0", "RS256") for _ in range(5)))

    with ThreadPoolExecutor(3) as threads:  # each with a loop of its own
        found = [threads.submit(asyncio.run, several()) for _ in range(3)]
        assert held.asked.wait(WAIT_SECONDS)
        held.release()
        results = [key for one in found for key in one.result(WAIT_SECONDS)]
    assert len(results) == 15
    assert len(set(map(id, results))) == 1
    assert results[0] is not None
    assert provider.count() == 1


async def test_a_cancelled_caller_does_not_cancel_the_fetch_of_others(provider: Provider) -> None:
    keys, held = keyset(provider), provider.hold("/keys")
    first = asyncio.create_task(keys.find("RS256-0", "RS256"))
    await eventually(held.asked.is_set)
    second = asyncio.create_task(keys.find("RS256-0", "RS256"))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    held.release()
    assert await second is not None
    assert provider.count() == 1


def test_a_closed_loop_leaves_no_caller_waiting(provider: Provider) -> None:
    keys, held = keyset(provider), provider.hold("/keys")

    async def leave() -> None:
        asking = asyncio.create_task(keys.find("RS256-0", "RS256"))
        await eventually(held.asked.is_set)
        asking.cancel()

    asyncio.run(leave())
    held.release()
    assert find(keys) is not None


NO_SETS: dict[str, Callable[[Provider], Any]] = {
    "20 MB": lambda provider: (200, {}, itertools.repeat(b" " * 65536, 320)),
    "20 MB in one": lambda provider: (200, {}, json.dumps({"keys": provider.keys}).encode() + b" " * 20_000_000),
    "redirect": lambda provider: (302, {"Location": f"{provider.origin}/elsewhere"}, {}),
    "permanent redirect": lambda provider: (308, {"Location": f"{provider.origin}/elsewhere"}, {}),
    "gzip": lambda provider: (200, {"Content-Encoding": "gzip"}, b"\x1f\x8b"),
    "no JSON": lambda provider: (200, {}, b"<html>"),
    "a list": lambda provider: (200, {}, [public(new_key())]),
    "no keys": lambda provider: (200, {}, {"keys": []}),
    "keys are no list": lambda provider: (200, {}, {"keys": {"a": 1}}),
    "too many keys": lambda provider: (200, {}, {"keys": [public(new_key())] * 101}),
    "names twice": lambda provider: (200, {}, b'{"keys": [], "keys": []}'),
    "not found": lambda provider: (404, {}, {"keys": [public(new_key())]}),
    "created": lambda provider: (201, {}, {"keys": [public(new_key())]}),
    "deep": lambda provider: (200, {}, b"[" * 100_000),
}


def test_invalid_responses_are_not_used_as_keys(provider: Provider, subtests: pytest.Subtests) -> None:
    for kind, answer in NO_SETS.items():
        with subtests.test(kind=kind):
            provider.asked.clear()
            provider.answers["/keys"] = partial(answer, provider)
            provider.answers["/elsewhere"] = lambda: (200, {}, {"keys": provider.keys})
            with pytest.raises(KeysUnavailable):
                find(keyset(provider))
            assert provider.asked == ["/keys"]


async def test_a_slow_provider_counts_as_unavailable(provider: Provider, clock: Clock) -> None:
    held = provider.hold("/keys")
    found = asyncio.create_task(keyset(provider).find("RS256-0", "RS256"))
    await eventually(held.asked.is_set)
    await clock.advance(http.REQUEST_TIMEOUT_SECONDS - 1)
    assert not found.done()
    await clock.advance(1.5)
    await eventually(found.done)
    with pytest.raises(KeysUnavailable):
        await found


async def test_a_provider_that_sends_too_slowly_counts_as_unavailable(provider: Provider, clock: Clock) -> None:
    first, go_on, second, over = (threading.Event() for _ in range(4))

    def drip() -> Iterator[bytes]:
        yield b" "
        first.set()
        go_on.wait(WAIT_SECONDS)
        yield b" "
        second.set()
        over.wait(WAIT_SECONDS)

    provider.answers["/keys"] = lambda: (200, {}, drip())
    found = asyncio.create_task(keyset(provider).find("RS256-0", "RS256"))
    try:
        await eventually(first.is_set)
        await clock.advance(http.REQUEST_TIMEOUT_SECONDS * 0.6)
        go_on.set()
        await eventually(second.is_set)
        await clock.advance(http.REQUEST_TIMEOUT_SECONDS * 0.405)
        await eventually(found.done, "each byte gives the provider more time")
        with pytest.raises(KeysUnavailable):
            await found
    finally:
        over.set()


def test_a_provider_without_a_server_counts_as_unavailable() -> None:
    with serving() as provider:
        keys = keyset(provider)
    with pytest.raises(KeysUnavailable):
        find(keys)


WEAK = {"kty": "RSA", "kid": "weak", "n": "AQAB" * 32, "e": "AQAB"}


def test_unusable_keys_of_the_set_are_ignored(provider: Provider) -> None:
    one, two = new_key("RS256", 1), new_key("RS256", 2)
    provider.keys = [
        None,
        7,
        "key",
        {},
        {"kty": ["RSA"]},
        {"kty": "oct", "kid": "oct", "k": "AAAA"},
        {"kty": "RSA", "kid": "empty", "n": "", "e": ""},
        {"kty": "RSA", "kid": "broken", "n": "***", "e": "AQAB"},
        {"kty": "EC", "kid": "off the curve", "crv": "P-256", "x": "AAAA", "y": "AAAA"},
        {"kty": "EC", "kid": "bitcoin", "crv": "secp256k1", "x": "AAAA", "y": "AAAA"},
        {"kty": "OKP", "kid": "short", "crv": "Ed25519", "x": "AAAA"},
        {"kty": "OKP", "kid": "exchange", "crv": "X25519", "x": "A" * 43},
        WEAK,
        public(one, use="enc"),
        public(one, kid="operations", key_ops=["encrypt"]),
        public(one, kid="algorithm", alg="PS256"),
        public(one, kid=7),
        public(two, alg="RS256", key_ops=["verify"], x5c=["anything"]),
        {**two.export(as_dict=True), "kid": "private too"},
    ]
    keys = keyset(provider)
    unusable = ["oct", "empty", "broken", "off the curve", "bitcoin", "short", "exchange", "weak", "operations"]
    for kid in [*unusable, "algorithm", one.get("kid")]:
        for algorithm in ("RS256", "ES256", "EdDSA"):
            assert find(keys, kid, algorithm) is None
    assert find(keys, two.get("kid")) is not None
    assert find(keys, two.get("kid"), "ES256") is None
    published = find(keys, "private too")
    assert published is not None
    assert not published._key.has_private


def test_a_key_without_an_id_must_be_the_only_one(provider: Provider) -> None:
    assert find(keyset(provider), None) is not None
    provider.keys.append(public(new_key("ES256")))
    assert find(keyset(provider), None) is not None  # the other is of another algorithm
    assert find(keyset(provider), None, "ES256") is not None
    provider.keys.append(public(new_key("RS256", 1)))
    assert find(keyset(provider), None) is None


def test_two_keys_with_the_same_id_are_ignored(provider: Provider) -> None:
    provider.keys.append(public(new_key("RS256", 1), kid="RS256-0"))
    assert find(keyset(provider)) is None


def test_the_keys_are_found_by_the_discovery_document(provider: Provider) -> None:
    assert find(keyset(provider, LEEWAY=1)) is not None
    assert provider.asked == [
        "/.well-known/oauth-authorization-server",
        "/.well-known/openid-configuration",
        "/keys",
    ]
    provider.answers["/there"] = lambda: (200, {}, provider.document())
    assert find(keyset(provider, DISCOVERY=f"{provider.origin}/there")) is not None


WRONG_DOCUMENTS: list[dict[str, Any]] = [
    {"issuer": "https://other.example"},
    {"issuer": None},
    {"jwks_uri": None},
    {"jwks_uri": "http://keys.example/keys"},
    {"jwks_uri": "file:///etc/passwd"},
    {"jwks_uri": "https://user:password@keys.example/keys"},
    {"jwks_uri": ["https://keys.example"]},
]


def test_a_discovery_document_of_another_or_without_keys_is_not_used(
    provider: Provider, subtests: pytest.Subtests
) -> None:
    for changes in WRONG_DOCUMENTS:
        with subtests.test(changes=changes):
            document = provider.document() | changes
            provider.answers["/.well-known/openid-configuration"] = lambda document=document: (200, {}, document)
            with pytest.raises(KeysUnavailable):
                find(keyset(provider, LEEWAY=1))
            assert provider.count() == 0


def test_the_urls_of_discovery_documents() -> None:
    assert build_discovery_urls("https://id.example/realms/shop") == (
        "https://id.example/.well-known/oauth-authorization-server/realms/shop",
        "https://id.example/realms/shop/.well-known/openid-configuration",
    )
    assert build_discovery_urls("https://id.example/") == (
        "https://id.example/.well-known/oauth-authorization-server",
        "https://id.example/.well-known/openid-configuration",
    )


def test_https_requires_a_trusted_certificate(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = certificate(tmp_path)
    with serving(made) as provider:
        uri = f"{provider.origin}/keys"
        with pytest.raises(KeysUnavailable):
            find(keyset(provider, JWKS_URI=uri))
        assert provider.asked == []
        assert find(keyset(provider, JWKS_URI=uri, CA_FILE=str(made[0]))) is not None
        assert provider.asked == ["/keys"]
