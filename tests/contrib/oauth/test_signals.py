"""A process forgets the bearer of a token as soon as the token ends, in each way in which it can end."""

from collections.abc import Callable
from typing import Any

import pytest
from django.core.management import call_command
from django.utils import timezone

from mcp_django.auth.authentication import principal_cache
from mcp_django.auth.principal import DjangoPrincipal
from mcp_django.contrib.oauth.flows import revocation
from mcp_django.contrib.oauth.models import Consent
from mcp_django.contrib.oauth.toolkit_compat import get_access_token_model, get_grant_model
from tests.support.savepoints import rolled_back

from . import oauth_flow
from .oauth_flow import (
    RESOURCE,
    create_client,
    create_user,
    find_token_row,
    issue_code,
    obtain_tokens,
    post,
    read_json,
    refresh,
)

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.contrib.oauth.urls")]


@pytest.fixture(autouse=True)
def protected(settings: Any) -> None:
    settings.MCP = oauth_flow.SETTINGS


class BearerMemory:
    """The principals that a process remembers: the bearer of a token, and another user."""

    def __init__(self) -> None:
        self.app, self.user = create_client(), create_user()
        Consent.objects.create(user=self.user, application=self.app, resource=RESOURCE, redirects_hash="")
        self.tokens = obtain_tokens(self.app, self.user)
        self.store = principal_cache.PrincipalCache(60)
        self.row = find_token_row(self.tokens["access_token"])
        self._keep(b"mine", self.user, self.app.client_id, self.row.pk)
        self._keep(b"other", create_user("bob"), "other", self.row.pk + 1)

    def _keep(self, digest: bytes, user: Any, client_id: str, token_id: int) -> None:
        found = DjangoPrincipal(
            issuer="django", subject=str(user.pk), user=user, client_id=client_id, kind="oauth", token_id=token_id
        )
        self.store.add(digest, found, principal_cache.get_generation())


def revoke(found: BearerMemory) -> None:
    post("/o/revoke_token/", {"client_id": found.app.client_id, "token": found.tokens["refresh_token"]})


def replay(found: BearerMemory) -> None:
    given = issue_code(found.app, found.user)
    read_json(oauth_flow.exchange(found.app, given))
    found.row.delete()


def withdraw_access(found: BearerMemory) -> None:
    revocation.withdraw_access(found.user, found.app)


def revoke_consent(found: BearerMemory) -> None:
    consent = Consent.objects.get()
    consent.revoked = timezone.now()
    consent.save()


def clear(found: BearerMemory) -> None:
    get_access_token_model().objects.filter(pk=found.row.pk).update(
        expires=timezone.now() - timezone.timedelta(days=40)
    )
    call_command("cleartokens")


def block(found: BearerMemory) -> None:
    found.app.mcp_profile.blocked = True
    found.app.mcp_profile.save()


ENDS: dict[str, Callable[[BearerMemory], Any]] = {
    "the client gives it back": revoke,
    "the row is deleted": replay,
    "the user sends the client away": withdraw_access,
    "the admin takes the consent back": revoke_consent,
    "the admin deletes the consent": lambda found: Consent.objects.get().delete(),
    "the admin deletes consents": lambda found: Consent.objects.all().delete(),
    "expired tokens are cleared": clear,
    "the client is blocked": block,
    "the client is deleted": lambda found: found.app.delete(),
    "the client's tokens end": lambda found: revocation.revoke_client(found.app),
    "the user's tokens end": lambda found: revocation.revoke_user(found.user),
}


def test_a_bearer_is_forgotten_when_the_token_ends(
    subtests: pytest.Subtests, django_capture_on_commit_callbacks: Any
) -> None:
    for name, end in ENDS.items():
        with subtests.test(name), rolled_back():
            found = BearerMemory()
            assert found.store.get(b"mine") is not None
            with django_capture_on_commit_callbacks(execute=True):
                end(found)
            assert found.store.get(b"mine") is None
            assert found.store.get(b"other") is not None


def test_a_revoked_consent_revokes_its_tokens() -> None:
    found = BearerMemory()
    issue_code(found.app, found.user)
    revoke_consent(found)
    assert not get_access_token_model().objects.exists()
    assert not get_grant_model().objects.exists()
    assert read_json(refresh(found.app, found.tokens["refresh_token"]), 400)["error"] == "invalid_grant"


def test_a_new_token_forgets_no_bearer(django_capture_on_commit_callbacks: Any) -> None:
    found = BearerMemory()
    with django_capture_on_commit_callbacks(execute=True):
        obtain_tokens(found.app, found.user)
        read_json(refresh(found.app, found.tokens["refresh_token"]))
    assert found.store.get(b"mine") is not None
