"""Principals of local processes, and their validity."""

from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.contrib.auth import get_user_model
from django.core.management import CommandError
from django.test import override_settings

from mcp_django.management.stdio_user import identify_token_bearer, identify_user
from mcp_django.models import PersonalAccessToken
from mcp_django.protocol.errors import TransportRefusal
from mcp_django.transports.credentials import StreamCredential

pytestmark = pytest.mark.django_db(transaction=True)
User = get_user_model()


@pytest.fixture
def ada() -> Any:
    return User.objects.create_user("ada")


async def test_a_user_keeps_the_principal_until_it_is_deactivated(ada: Any) -> None:
    principal, credential = await sync_to_async(identify_user)("default", "ada", ["a"])
    assert (principal.user, principal.scopes) == (ada, {"a"})
    assert (principal.owner, principal.kind) == (f"django|{ada.pk}", "command")
    assert not principal.has_scopes(["b"])
    assert credential is not None
    now = await credential.verify()
    assert (now.key, now.scopes) == (principal.key, principal.scopes)
    assert await StreamCredential(credential, principal).is_valid()
    ada.is_active = False
    await ada.asave()
    with pytest.raises(TransportRefusal) as caught:
        await credential.verify()
    assert caught.value.status == 401
    assert not await StreamCredential(credential, principal).is_valid()


async def test_a_user_without_named_scopes_holds_every_one_until_it_is_deleted(ada: Any) -> None:
    principal, credential = await sync_to_async(identify_user)("default", "ada", None)
    assert principal.has_scopes(["whatever"])
    assert credential is not None
    assert (await credential.verify()).has_scopes(["whatever"])
    await ada.adelete()
    assert not await StreamCredential(credential, principal).is_valid()


def test_the_local_principal_acts_as_its_user(ada: Any) -> None:
    with override_settings(MCP={"AUTH": "none", "LOCAL_USER": "ada"}):
        principal, credential = identify_user("default", None, None)
    assert (principal.key, principal.user, credential) == ("local", ada, None)


def test_an_inactive_user_is_refused(ada: Any, subtests: pytest.Subtests) -> None:
    for username in ("ada", None):
        with subtests.test(username=username):
            User.objects.update(is_active=False)
            with override_settings(MCP={"LOCAL_USER": "ada"}), pytest.raises(CommandError, match="'ada' is not active"):
                identify_user("default", username, None)


def test_tokens_are_accepted_where_the_setting_permits(ada: Any, subtests: pytest.Subtests) -> None:
    async def check(auth: str | None, complaint: str) -> None:
        _, token = await sync_to_async(PersonalAccessToken.issue)(user=ada, name="t", scopes=["a"], expires=None)
        with override_settings(MCP={"AUTH": "token"}):
            principal, credential = await identify_token_bearer("default", token)
            assert (principal.user, principal.scopes) == (ada, {"a"})
            assert credential is not None
            assert await StreamCredential(credential, principal).is_valid()
        settings = override_settings(MCP={"AUTH": auth}, OAUTH2_PROVIDER={})
        with settings, pytest.raises(CommandError, match=complaint) as caught:
            await identify_token_bearer("default", token)
        assert token not in str(caught.value)

    for auth, complaint in (("none", "tokens are not accepted"), (None, "not configured")):
        with subtests.test(auth=auth, complaint=complaint):
            async_to_sync(check)(auth, complaint)


def test_invalid_tokens_are_refused(subtests: pytest.Subtests) -> None:
    async def check(token: str) -> None:
        with override_settings(MCP={"AUTH": "token"}), pytest.raises(CommandError, match="was rejected") as caught:
            await identify_token_bearer("default", token)
        assert token not in str(caught.value)

    for token in ("mcp_wrong", "ä", "\udcff", "two words", "x" * 10_000):
        with subtests.test(token=token):
            async_to_sync(check)(token)
