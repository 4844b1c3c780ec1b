"""Opaque tokens: their issuer is asked (RFC 7662), believed only where it is clear, and never blamed on the token."""

import asyncio
import base64
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User

from mcp_django.auth.authentication.verifiers import AuthError
from mcp_django.auth.external import http
from mcp_django.auth.external import verifier as external_verifier
from mcp_django.auth.external.verifier import ExternalVerifier
from tests.auth.external_issuer import RESOURCE, introspecting_verifier, is_invalid, linked, refusal, verify
from tests.auth.identity_provider import Provider, read_issuers, serving
from tests.support.clock import Clock
from tests.support.savepoints import rolled_back
from tests.support.waiting import eventually

pytestmark = pytest.mark.django_db


@pytest.fixture
def provider() -> Iterator[Provider]:
    with serving() as provider:
        provider.introspects()
        yield provider


@pytest.fixture
def ada(provider: Provider) -> User:
    return linked(provider)


def test_an_opaque_token_is_the_user_of_the_introspection(
    provider: Provider, ada: User, django_assert_num_queries: Any
) -> None:
    provider.introspects(client_id="cli", token_type="Bearer")
    verifier = introspecting_verifier(provider)
    assert verifier.accepts("opaque-token")
    with django_assert_num_queries(1):
        who = verify(verifier, "opaque-token")
    assert (who.user, who.key) == (ada, f"{provider.issuer}|ada|cli")
    assert who.scopes == {"a", "b"}
    assert provider.forms == [{"token": "opaque-token", "token_type_hint": "access_token"}]
    assert provider.credentials == ["Basic " + base64.b64encode(b"shop:s3cret").decode()]


def test_client_credentials_are_form_encoded(provider: Provider, ada: User) -> None:
    verify(introspecting_verifier(provider, CLIENT_ID="a:b", CLIENT_SECRET="c d+é"), "opaque")
    assert provider.credentials == ["Basic " + base64.b64encode(b"a%3Ab:c+d%2B%C3%A9").decode()]
    verify(introspecting_verifier(provider, CLIENT_AUTH="post"), "opaque")
    assert provider.credentials[1] is None
    assert provider.forms[1]["client_id"] == "shop"
    assert provider.forms[1]["client_secret"] == "s3cret"


ACTIVE: list[Any] = [False, "true", "True", 1, None, [True], {"active": True}, ...]


def test_only_true_is_active(provider: Provider, ada: User, subtests: pytest.Subtests) -> None:
    for active in ACTIVE:
        with subtests.test(active=active), rolled_back():
            provider.active_claims["active"] = active
            if active is ...:
                del provider.active_claims["active"]
            assert is_invalid(introspecting_verifier(provider), "opaque")


WRONG: list[dict[str, Any]] = [
    {"aud": ...},
    {"aud": None},
    {"aud": []},
    {"aud": "https://other.example"},
    {"iss": "https://other.example"},
    {"iss": None},
    {"sub": ...},
    {"exp": 1},
    {"exp": "soon"},
    {"nbf": 10**10},
    {"token_type": "refresh_token"},
    {"token_use": "refresh_token"},
    {"typ": "Refresh"},
    {"cnf": {"x5t#S256": "x"}},
]


def test_an_active_token_with_wrong_claims_is_refused(provider: Provider, ada: User, subtests: pytest.Subtests) -> None:
    for claims in WRONG:
        with subtests.test(claims=claims), rolled_back():
            provider.introspects(**claims)
            assert is_invalid(introspecting_verifier(provider), "opaque")


def test_an_introspection_without_issuer_and_dates_is_accepted(provider: Provider, ada: User) -> None:
    provider.introspects(iss=..., exp=..., iat=...)
    who = verify(introspecting_verifier(provider), "opaque")
    assert (who.issuer, who.expires_at) == (provider.issuer, None)


FAILURES: list[Any] = [
    (500, {}, {}),
    (401, {}, {"error": "invalid_client"}),
    (400, {}, {}),
    (302, {"Location": "/elsewhere"}, {}),
    (200, {}, b"<html>"),
    (200, {}, b"[]"),
    (200, {}, b'{"active": true, "active": true}'),
    (200, {}, b'{"active": true, "exp": NaN}'),
    (200, {}, b" " * 70_000),
]


def test_an_unusable_introspection_does_not_invalidate_the_token(
    provider: Provider, ada: User, subtests: pytest.Subtests
) -> None:
    for answer in FAILURES:
        with subtests.test(answer=answer), rolled_back():
            provider.asked.clear()
            provider.answers["/introspect"] = lambda answer=answer: answer
            problem = refusal(introspecting_verifier(provider), "opaque")
            assert (problem.kind, problem.status) == ("unavailable", 503)
            assert problem.retry_after > 0
            assert provider.asked == ["/introspect"]


async def test_a_slow_issuer_does_not_invalidate_the_token(provider: Provider, ada: User, clock: Clock) -> None:
    held = provider.hold("/introspect")
    verified = asyncio.create_task(introspecting_verifier(provider).verify("opaque", resource=RESOURCE))
    await eventually(held.asked.is_set)
    await clock.advance(http.REQUEST_TIMEOUT_SECONDS + 1)
    await eventually(verified.done)
    with pytest.raises(AuthError) as caught:
        await verified
    assert (caught.value.kind, caught.value.status) == ("unavailable", 503)


def test_an_unavailable_issuer_does_not_invalidate_the_token(ada: User) -> None:
    with serving() as gone:
        verifier = introspecting_verifier(gone)
    assert refusal(verifier, "opaque").kind == "unavailable"


def test_an_introspection_is_cached_for_a_short_time(provider: Provider, ada: User, clock: Clock) -> None:
    verifier = introspecting_verifier(provider, INTROSPECTION_CACHE=20)
    verify(verifier, "opaque")
    clock.move(19)
    verify(verifier, "opaque")
    assert len(provider.asked) == 1
    verify(verifier, "another")
    assert len(provider.asked) == 2
    clock.move(2)
    provider.active_claims["active"] = False
    assert is_invalid(verifier, "opaque")
    assert is_invalid(verifier, "opaque")
    assert len(provider.asked) == 4  # an inactive token is introspected again


def test_an_introspection_is_not_cached_beyond_the_expiry_of_the_token(provider: Provider, ada: User) -> None:
    provider.introspects(exp=provider.claims()["iat"] - 10)  # within the leeway
    verifier = introspecting_verifier(provider, INTROSPECTION_CACHE=60)
    verify(verifier, "opaque")
    verify(verifier, "opaque")
    assert len(provider.asked) == 2


async def test_concurrent_introspections_are_limited(
    provider: Provider, ada: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(external_verifier, "MAX_OPEN_REQUESTS", 2)
    held = provider.hold("/introspect")
    look_up = external_verifier.Introspector(introspecting_verifier(provider)._introspecting[0].issuer).introspect
    first = [asyncio.create_task(look_up(token)) for token in ("one", "two")]
    await asyncio.sleep(0)
    with pytest.raises(http.ProviderUnreachable):
        await look_up("three")
    held.release()
    one, two = await asyncio.gather(*first)
    assert one["active"] is two["active"] is True


def test_tokens_are_sent_to_the_issuer_of_their_prefix_only() -> None:
    with serving() as one, serving() as two:
        entries = [
            {
                "ISSUER": provider.issuer,
                "INTROSPECTION_URL": f"{provider.origin}/introspect",
                "CLIENT_ID": "shop",
                "CLIENT_SECRET": "s3cret",
                "PREFIX": prefix,
            }
            for provider, prefix in ((one, "one_"), (two, "two_"))
        ]
        for provider in (one, two):
            provider.introspects()
            linked(provider, username=provider.issuer)
        verifier = ExternalVerifier(read_issuers(*entries))
        assert verify(verifier, "one_token").issuer == one.issuer
        assert verify(verifier, "two_token").issuer == two.issuer
        assert [form["token"] for form in one.forms] == ["one_token"]
        assert [form["token"] for form in two.forms] == ["two_token"]
        for token in ("three_token", "onetoken", "ONE_token", one.token(iss="https://other.example")):
            assert not verifier.accepts(token)
            assert is_invalid(verifier, token)
        assert len(one.forms) == len(two.forms) == 1


def test_foreign_tokens_are_not_sent_to_the_issuer(provider: Provider, subtests: pytest.Subtests) -> None:
    for token in ("mcp_pat_x", "mcp_at_x", "mcp_rt_x", "mcp_", "eyJ.e30.x", "eyJhbGciOiJub25lIn0.e30."):
        with subtests.test(token=token):
            verifier = introspecting_verifier(provider)
            assert not verifier.accepts(token)
            assert is_invalid(verifier, token)
            assert provider.asked == []


def test_jwts_of_an_issuer_without_keys_are_introspected(provider: Provider, ada: User) -> None:
    token = provider.token()
    assert verify(introspecting_verifier(provider), token).user == ada
    assert provider.forms[0]["token"] == token
    assert provider.count() == 0


def test_jwts_of_an_issuer_with_keys_are_verified_locally(provider: Provider, ada: User) -> None:
    verifier = introspecting_verifier(provider, JWKS_URI=f"{provider.origin}/keys")
    assert verify(verifier, provider.token()).user == ada
    assert provider.asked == ["/keys"]
    assert verify(verifier, "opaque").user == ada


def test_neither_token_nor_secret_is_logged(provider: Provider, ada: User, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    verifier = introspecting_verifier(provider, CLIENT_AUTH="post")
    verify(verifier, "opaque-token-1")
    provider.active_claims["active"] = False
    refusal(verifier, "opaque-token-2")
    provider.answers["/introspect"] = lambda: (500, {}, {})
    refusal(verifier, "opaque-token-3")
    issuer = verifier._introspecting[0].issuer
    seen = caplog.text + repr(issuer) + repr(vars(verifier)) + repr(vars(verifier._introspecting[0]._introspector))
    assert "opaque-token" not in seen
    assert "s3cret" not in seen
