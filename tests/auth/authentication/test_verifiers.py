"""Personal access tokens, and the entries of MCP["AUTH"]."""

import logging
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.db import OperationalError
from django.utils import timezone

from mcp_django.auth.authentication.verifiers import INVALID_MESSAGE, AuthError, PersonalTokenVerifier, build_verifier
from mcp_django.auth.principal import DjangoPrincipal
from mcp_django.auth.resource import ProtectedResource
from mcp_django.models import PersonalAccessToken

VERIFIER = PersonalTokenVerifier()


@pytest.fixture
def user(db: None) -> User:
    return User.objects.create_user("alice")


@pytest.fixture
def issue(user: User) -> Any:
    """Issues a token of alice's; gives the row and the token."""

    def issue(**facts: Any) -> tuple[PersonalAccessToken, str]:
        return PersonalAccessToken.issue(user=user, name="test", **{"expires": None, **facts})

    return issue


def verify(token: str, server: str = "default") -> DjangoPrincipal:
    return async_to_sync(VERIFIER.verify)(token, resource=ProtectedResource(server=server))


def refusal(token: str, server: str = "default") -> AuthError:
    """How the token is refused."""
    with pytest.raises(AuthError) as caught:
        verify(token, server)
    return caught.value


def test_a_valid_token_is_its_user_with_its_scopes(issue: Any, user: User) -> None:
    expires = timezone.now() + timedelta(days=1)
    row, token = issue(scopes=["b", "a"], expires=expires)
    who = verify(token)
    assert who.user == user
    assert who.scopes == {"a", "b"}
    assert who.expires_at == expires.timestamp()
    assert (who.kind, who.token_id, who.audience) == ("token", row.pk, None)
    assert who.key == f"django|{user.pk}|token:{row.pk}"
    assert not who.is_local


def test_a_token_without_scopes_has_none(issue: Any) -> None:
    assert verify(issue()[1]).scopes == frozenset()


def test_two_tokens_of_a_user_are_two_clients(issue: Any) -> None:
    assert verify(issue()[1]).key != verify(issue()[1]).key


def test_a_token_for_one_server_is_valid_there_only(issue: Any) -> None:
    _, token = issue(audience="shop")
    assert verify(token, "shop").audience == "shop"
    for server in ("default", "shop2", "sho", "SHOP", ""):
        assert refusal(token, server).kind == "invalid_token"


def test_every_invalid_token_has_the_same_refusal(issue: Any, user: User) -> None:
    now = timezone.now()
    revoked, expired, foreign = issue(), issue(expires=now - timedelta(seconds=1)), issue(audience="other")
    revoked[0].revoke()
    deleted = issue()
    deleted[0].delete()
    altered = issue()[1]
    altered = altered[:-1] + ("a" if altered[-1] != "a" else "b")
    tokens = [revoked[1], expired[1], foreign[1], deleted[1], altered, "x", ""]
    refusals = [refusal(token) for token in tokens]
    user.is_active = False
    user.save()
    refusals.append(refusal(issue()[1]))
    assert {(problem.kind, problem.description, problem.status) for problem in refusals} == {
        ("invalid_token", INVALID_MESSAGE, 401)
    }


def test_verification_needs_one_query_and_one_write_per_minute(issue: Any, django_assert_num_queries: Any) -> None:
    row, token = issue()
    with django_assert_num_queries(2):
        verify(token)
    row.refresh_from_db()
    assert row.last_used_at is not None
    used = row.last_used_at
    with django_assert_num_queries(1):
        assert verify(token).user.username == "alice"
    row.refresh_from_db()
    assert row.last_used_at == used
    PersonalAccessToken.objects.update(last_used_at=used - timedelta(minutes=1))
    with django_assert_num_queries(2):
        verify(token)
    row.refresh_from_db()
    assert row.last_used_at >= used


def test_an_invalid_token_is_not_marked_as_used(issue: Any) -> None:
    row, token = issue()
    row.revoke()
    refusal(token)
    row.refresh_from_db()
    assert row.last_used_at is None


def test_a_database_failure_is_unavailable_and_never_an_invalid_token(
    issue: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    _, token = issue()

    async def fail(*args: Any) -> None:
        raise OperationalError("the database is gone")

    monkeypatch.setattr(PersonalTokenVerifier, "_find", fail)
    problem = refusal(token)
    assert (problem.kind, problem.status) == ("unavailable", 503)
    assert problem.retry_after > 0
    assert "gone" not in problem.description
    assert token not in caplog.text


def test_verification_works_on_a_read_only_database(issue: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    _, token = issue()

    async def fail(*args: Any, **kwargs: Any) -> None:
        raise OperationalError("attempt to write a readonly database")

    queryset = type(PersonalAccessToken.objects.all())
    monkeypatch.setattr(queryset, "aupdate", fail)
    with caplog.at_level(logging.WARNING, "mcp_django.auth"):
        assert verify(token).user.username == "alice"
    assert "readonly" in caplog.text


def test_only_tokens_of_the_own_form_are_accepted(issue: Any) -> None:
    assert VERIFIER.accepts(issue()[1])
    assert not VERIFIER.accepts("eyJhbGciOiJIUzI1NiJ9.e30.x")
    assert not VERIFIER.accepts(issue()[1] + "0")


class Plain:
    """A verifier that takes every token."""

    async def verify(self, token: str, *, resource: ProtectedResource) -> DjangoPrincipal:
        return DjangoPrincipal(issuer="plain", subject=f"{token}@{resource.server}")


async def function(token: str, *, resource: ProtectedResource) -> DjangoPrincipal:
    return DjangoPrincipal(issuer="plain", subject=f"{token}@{resource.server}")


async def test_a_dotted_path_may_name_a_class_an_object_or_a_function() -> None:
    for found in (Plain, Plain(), function):
        verifier = build_verifier(found)
        assert verifier.accepts("anything")
        assert (await verifier.verify("abc", resource=ProtectedResource(server="shop"))).subject == "abc@shop"


def test_the_accepts_method_of_a_verifier_is_used() -> None:
    assert not build_verifier(PersonalTokenVerifier).accepts("anything")


def test_other_objects_are_a_configuration_error(subtests: pytest.Subtests) -> None:
    for found in (object(), 7, "text", lambda token, server: None):
        with subtests.test(found=found), pytest.raises(ImproperlyConfigured, match="async def verify"):
            build_verifier(found)


async def by_alias(token: str, *, server: str) -> DjangoPrincipal:
    raise NotImplementedError


def test_a_verifier_without_the_resource_parameter_is_refused_with_a_hint() -> None:
    with pytest.raises(ImproperlyConfigured, match=r"by_alias does not accept the resource.*resource\.server"):
        build_verifier(by_alias)
