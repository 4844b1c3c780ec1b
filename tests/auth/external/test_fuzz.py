"""Whatever a provider signs or answers, however odd: a principal, or the one refusal. Never a bug."""

from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcp_django.auth.authentication.verifiers import INVALID_MESSAGE, AuthError
from mcp_django.auth.external.verifier import ExternalVerifier
from mcp_django.auth.principal import DjangoPrincipal
from tests.auth.external_issuer import RESOURCE, introspecting_verifier, verifier_of
from tests.auth.identity_provider import AUDIENCE, Provider, serving

MAPPED = {"SUBJECT": "a.b", "SCOPES": ["scope", "realm.roles"], "EMAIL": ["email"], "EXTRA": ["tid", "sub"]}
NAMES = ["sub", "aud", "exp", "iat", "nbf", "scope", "scp", "client_id", "azp", "jti", "email", "email_verified", "a"]
NAMES += ["preferred_username", "realm", "typ", "token_type", "cnf", "nonce", "tid", "active", "iss", "a.b"]

texts = st.text(max_size=12) | st.sampled_from(["ada", AUDIENCE, "a b", "\0", "\u202e", "x" * 300, "admin", "%", "'"])
numbers = st.integers(-(2**70), 2**70) | st.floats() | st.sampled_from([0, 1, 10**10, 253402300800, -1.5])
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts | st.sampled_from(NAMES), inner, max_size=3),
    max_leaves=6,
)
odd = st.dictionaries(st.sampled_from(NAMES), values, max_size=4)
hostile = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with serving() as provider:
        yield provider


VERIFIERS: dict[str, ExternalVerifier] = {}
"""What the examples of one test share."""


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Each test begins with verifiers that know nothing."""
    yield
    VERIFIERS.clear()


def outcome(verifier: ExternalVerifier, token: str) -> DjangoPrincipal | AuthError:
    """Return the principal of a token, or its refusal; the database is rolled back."""
    with transaction.atomic():
        try:
            return async_to_sync(verifier.verify)(token, resource=RESOURCE)
        except AuthError as refused:
            return refused
        finally:
            transaction.set_rollback(True)


def is_one_or_the_other(found: DjangoPrincipal | AuthError) -> bool:
    """Is it a principal that holds together, or refused as every bad token is?"""
    if isinstance(found, DjangoPrincipal):
        assert found.user is None or found.user.is_active
        assert found.subject
        assert found.key
        return all(" " not in scope for scope in found.scopes)
    return (found.kind, found.description) == ("invalid_token", INVALID_MESSAGE)


@pytest.mark.django_db
@hostile
@given(changes=odd)
def test_unusual_signed_claims(changes: dict[str, Any], provider: Provider) -> None:
    for options in ({"LINK": ["email", "username", "create"], "REQUIRE_TYPE": False}, {"CLAIMS": MAPPED}):
        verifier = VERIFIERS.setdefault(repr(options), verifier_of(provider, REQUIRE_USER=False, **options))
        assert is_one_or_the_other(outcome(verifier, provider.token(**changes)))


@pytest.mark.django_db
@hostile
@given(header=st.dictionaries(st.sampled_from(["typ", "kid", "cty", "x5c", "x5t", "url"]), values, max_size=3))
def test_unusual_signed_headers(header: dict[str, Any], provider: Provider) -> None:
    verifier = VERIFIERS.setdefault("headers", verifier_of(provider, REQUIRE_USER=False))
    assert is_one_or_the_other(outcome(verifier, provider.token(header=header)))


@pytest.mark.django_db
@hostile
@given(changes=odd)
def test_unusual_introspection_responses(changes: dict[str, Any], provider: Provider) -> None:
    provider.introspects(**changes)
    verifier = introspecting_verifier(provider, REQUIRE_USER=False, LINK=["create"])
    found = outcome(verifier, "opaque")
    # An answer that cannot be parsed as JSON, as one with NaN, gives no verdict.
    assert is_one_or_the_other(found) or (isinstance(found, AuthError) and found.status == 503)
