"""The caches of verified principals: expiry and invalidation."""

import gc
from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import Group, User
from django.core.cache import caches
from django.db import transaction
from django.test import override_settings

from mcp_django import wiring
from mcp_django.auth.authentication import principal_cache
from mcp_django.auth.authentication.active_principals import (
    ACTIVE_PRINCIPALS,
    MAX_RECORDED_PRINCIPALS,
    ActivePrincipals,
)
from mcp_django.auth.authentication.principal_cache import (
    CLOCK_SKEW_SECONDS,
    PrincipalCache,
    SharedPrincipalCache,
    get_generation,
    invalidate,
    match_all,
    match_user,
)
from mcp_django.auth.principal import ALL_SCOPES, DjangoPrincipal
from mcp_django.auth.requests import AuthRequest
from mcp_django.models import PersonalAccessToken, StreamEvent
from mcp_django.protocol.errors import TransportRefusal
from mcp_django.protocol.headers import Headers
from mcp_django.runtime.events.event_log import Event
from mcp_django.runtime.sessions.activity import CALLERS_TOPIC, get_reported_callers
from mcp_django.wiring.principal_invalidation import INVALIDATE_EVENT, PRINCIPALS_TOPIC

LOCMEM = {
    "BACKEND": "django.core.cache.backends.locmem.LocMemCache",
    "LOCATION": "active-principals",
}


def principal(user: Any = None, **facts: Any) -> DjangoPrincipal:
    return DjangoPrincipal(**{"issuer": "tests", "subject": "alice", "user": user, **facts})


@pytest.fixture
def user(db: None) -> User:
    return User.objects.create_user("alice", password="first")


@pytest.fixture
def invalidated_owners(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """Record the owners that other processes invalidate."""
    found: list[str | None] = []
    monkeypatch.setattr(principal_cache, "_publishers", [lambda owner, using: found.append(owner)])
    return found


def remembers(user: Any, **facts: Any) -> PrincipalCache:
    store = PrincipalCache(10)
    store.add(b"digest", principal(user, **facts), get_generation())
    assert store.get(b"digest")
    return store


def knows(store: PrincipalCache) -> bool:
    return store.get(b"digest") is not None


class TestForgetting:
    def test_an_invalidation_reaches_every_cache_of_the_process(self, invalidated_owners: Any, user: User) -> None:
        mine, another, others = remembers(user), remembers(user), remembers(None, subject="bob")
        invalidate(match_user(user.pk), using="default", user_pk=user.pk)
        assert (knows(mine), knows(another), knows(others)) == (False, False, True)
        assert invalidated_owners == [str(user.pk)]

    def test_a_concurrent_verification_is_not_cached(self, invalidated_owners: Any, db: None) -> None:
        store, begun = PrincipalCache(10), get_generation()
        invalidate(lambda principal: False, using="default")
        store.add(b"digest", principal(), begun)
        assert not knows(store)

    def test_a_deleted_cache_is_not_invalidated(self, invalidated_owners: Any, db: None) -> None:
        store = PrincipalCache(10)
        before = len(principal_cache._caches)
        del store
        gc.collect()
        assert len(principal_cache._caches) < before

    def test_a_failed_invalidation_of_other_processes_is_logged(
        self, db: None, monkeypatch: pytest.MonkeyPatch, caplog: Any
    ) -> None:
        def fails(owner: str | None, using: str) -> None:
            raise OSError("down")

        monkeypatch.setattr(principal_cache, "_publishers", [fails])
        store = remembers(None)
        invalidate(match_all, using="default")
        assert not knows(store)
        assert "could not be sent" in caplog.text


class TestInvalidation:
    def test_a_new_password(self, invalidated_owners: Any, user: User) -> None:
        store = remembers(user)
        user.set_password("second")
        user.save()
        assert not knows(store)
        assert invalidated_owners == [str(user.pk)]

    def test_a_deactivated_user(self, invalidated_owners: Any, user: User) -> None:
        store = remembers(user)
        user.is_active = False
        user.save()
        assert not knows(store)

    def test_other_changes_of_a_user_do_not_invalidate(self, invalidated_owners: Any, user: User) -> None:
        store = remembers(user)
        user.first_name = "Alice"
        user.save()
        user.save(update_fields=["last_login"])
        assert knows(store)
        assert invalidated_owners == []

    def test_another_group(self, invalidated_owners: Any, user: User) -> None:
        store = remembers(user)
        user.groups.add(Group.objects.create(name="staff"))
        assert not knows(store)
        store = remembers(user)
        Group.objects.create(name="editors").user_set.add(user)
        assert not knows(store)
        assert invalidated_owners == [str(user.pk)] * 2

    def test_a_revoked_token_and_no_other(self, invalidated_owners: Any, user: User) -> None:
        row, _ = PersonalAccessToken.issue(user=user, name="one", expires=None)
        mine, another = remembers(user, token_id=row.pk), remembers(user, token_id=row.pk + 1)
        row.revoke()
        assert (knows(mine), knows(another)) == (False, True)
        assert invalidated_owners == [str(user.pk)]

    def test_a_deleted_token(self, invalidated_owners: Any, user: User) -> None:
        row, _ = PersonalAccessToken.issue(user=user, name="one", expires=None)
        store = remembers(user, token_id=row.pk)
        row.delete()
        assert not knows(store)

    @pytest.mark.django_db(transaction=True)
    def test_a_verification_before_the_commit_is_removed_after_it(self, invalidated_owners: Any) -> None:
        user = User.objects.create_user("bob")
        store = PrincipalCache(10)
        with transaction.atomic():
            user.is_active = False
            user.save()
            store.add(b"digest", principal(user), get_generation())
            assert knows(store)
        assert not knows(store)


class TestOtherProcesses:
    def test_other_processes_invalidate_the_user_of_the_event(self, user: User) -> None:
        mine, others = remembers(user), remembers(None, subject="bob")
        invalidation = wiring.PROCESS.principal_invalidation
        invalidation.on_invalidation(Event(1, PRINCIPALS_TOPIC, INVALIDATE_EVENT, {"owner": str(user.pk)}))
        assert (knows(mine), knows(others)) == (False, True)
        invalidation.on_invalidation(Event(2, PRINCIPALS_TOPIC, INVALIDATE_EVENT, {"owner": None}))
        assert not knows(others)

    @pytest.mark.django_db(transaction=True)
    def test_other_processes_are_notified_by_the_event_log(self) -> None:
        user = User.objects.create_user("bob")
        drafts: list[Any] = []
        publish = wiring.get_services().event_publisher.publish_on_commit
        with override_settings(MCP={"AUTH": "token"}), pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                wiring.get_services().event_publisher, "publish_on_commit", lambda *found, **_: drafts.extend(found)
            )
            user.is_active = False
            user.save()
        assert publish
        assert (PRINCIPALS_TOPIC, INVALIDATE_EVENT, str(user.pk)) in [
            (draft.topic, draft.kind, draft.payload.get("owner")) for draft in drafts
        ]

    def test_other_processes_are_not_notified_without_credentials(
        self, user: User, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        drafts: list[Any] = []
        with override_settings(MCP={"AUTH": "none"}):
            publisher = wiring.get_services().event_publisher
            monkeypatch.setattr(publisher, "publish_on_commit", lambda *found, **_: drafts.extend(found))
            principal_cache.invalidate(principal_cache.match_user(str(user.pk)), using=None, user_pk=user.pk)
        assert drafts == []


class TestSharedCache:
    @pytest.fixture(autouse=True)
    def _cache(self, settings: Any) -> Iterator[None]:
        settings.CACHES = {
            "default": LOCMEM,
            "tokens": {**LOCMEM, "LOCATION": "active-principals-tokens"},
        }
        caches["tokens"].clear()
        yield
        caches["tokens"].clear()

    @pytest.fixture
    def clock(self) -> list[float]:
        return [1_000_000.0]

    @pytest.fixture
    def store(self, clock: list[float]) -> SharedPrincipalCache:
        return SharedPrincipalCache("tokens", 10, clock=lambda: clock[0])

    def test_a_verified_principal_is_shared_with_the_current_user(
        self, store: SharedPrincipalCache, clock: list[float], user: User, django_assert_num_queries: Any
    ) -> None:
        claims = {"realm": {"roles": ["a"]}, "groups": ("x", "y")}
        mine = principal(user, scopes=frozenset({"b", "a"}), claims=claims, kind="oauth", audience="https://a.example")
        store.add(b"digest", mine, clock[0])
        User.objects.update(first_name="Alice")
        with django_assert_num_queries(1):
            found = store.find(b"digest")
        assert found is not None
        assert (found.key, found.scopes, found.kind, found.audience) == (mine.key, mine.scopes, "oauth", mine.audience)
        assert found.user.first_name == "Alice"
        assert found.claims == {"realm": {"roles": ["a"]}, "groups": ["x", "y"]}
        assert store.find(b"other") is None

    def test_neither_token_nor_user_are_in_the_cache(
        self, store: SharedPrincipalCache, clock: list[float], user: User
    ) -> None:
        store.add(b"digest", principal(user), clock[0])
        kept = caches["tokens"].get(store._entry_key(b"digest"))
        assert {type(value) for value in kept.values()} <= {str, int, float, list, dict, type(None)}

    def test_an_inactive_user_is_not_found(self, store: SharedPrincipalCache, clock: list[float], user: User) -> None:
        store.add(b"digest", principal(user), clock[0])
        User.objects.update(is_active=False)
        assert store.find(b"digest") is None

    def test_a_verification_before_a_revocation_is_not_used(
        self, store: SharedPrincipalCache, clock: list[float], user: User
    ) -> None:
        for owner in (str(user.pk), None):  # of one user, and of all
            caches["tokens"].clear()
            store.add(b"digest", principal(user), clock[0])
            assert store.find(b"digest"), owner
            store.invalidate(owner)
            assert store.find(b"digest") is None, owner
            store.add(b"digest", principal(user), clock[0] + CLOCK_SKEW_SECONDS + 0.1)
            assert store.find(b"digest"), owner

    def test_a_revocation_concerns_its_user_only(
        self, store: SharedPrincipalCache, clock: list[float], user: User
    ) -> None:
        store.add(b"digest", principal(user), clock[0])
        store.invalidate("another")
        assert store.find(b"digest")

    def test_an_expired_principal_is_not_found(self, store: SharedPrincipalCache, clock: list[float], db: None) -> None:
        store.add(b"digest", principal(expires_at=clock[0] + 5), clock[0])
        assert store.find(b"digest")
        clock[0] += 5
        assert store.find(b"digest") is None

    def test_a_principal_that_cannot_be_serialized_is_not_shared(self, store: SharedPrincipalCache) -> None:
        for facts in ({"scopes": ALL_SCOPES}, {"expires_at": 1.0}, {"user": User(username="unsaved")}):
            store.add(b"digest", principal(**facts), 0)
            assert caches["tokens"].get(store._entry_key(b"digest")) is None, facts

    def test_another_project_in_the_same_cache_finds_no_principal(
        self, store: SharedPrincipalCache, clock: list[float], user: User
    ) -> None:
        store.add(b"digest", principal(user), clock[0])
        assert SharedPrincipalCache("tokens", 10, secret="another", clock=lambda: clock[0]).find(b"digest") is None
        assert SharedPrincipalCache("tokens", 10, clock=lambda: clock[0]).find(b"digest")

    def test_both_caches_together_expire_after_the_configured_seconds(self) -> None:
        options = {"AUTH": "token", "TOKEN_CACHE_SECONDS": 8}
        with override_settings(MCP={**options, "TOKEN_CACHE": "tokens"}):
            shared = wiring.get_services().shared_principal_cache
            assert shared is not None
            assert wiring.create_authenticator("default")._cache._seconds == shared._seconds == 4.0
        with override_settings(MCP={**options, "TOKEN_CACHE": None}):
            assert wiring.get_services().shared_principal_cache is None
            assert wiring.create_authenticator("default")._cache._seconds == 8.0

    def test_an_unavailable_cache_is_ignored(self, db: None, caplog: Any) -> None:
        store = SharedPrincipalCache("nowhere", 10)
        store.add(b"digest", principal(), 0)
        store.invalidate(None)
        assert store.find(b"digest") is None
        assert caplog.text.count("failed; tokens are verified without it") == 1

    def test_processes_share_by_the_setting(self, user: User) -> None:
        _, token = PersonalAccessToken.issue(user=user, name="one", expires=None)
        sent = AuthRequest(Headers([(b"authorization", f"Bearer {token}".encode())]))
        with override_settings(MCP={"AUTH": "token", "TOKEN_CACHE": "tokens"}):
            first, second = wiring.create_authenticator("default"), wiring.create_authenticator("default")
            who = async_to_sync(first.authenticate)(sent)
            PersonalAccessToken.objects.update(name="not looked at")
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(PersonalAccessToken, "hash", lambda token: "another")
                assert async_to_sync(second.authenticate)(sent).key == who.key
            user.is_active = False
            user.save()
            with pytest.raises(TransportRefusal):
                async_to_sync(second.authenticate)(sent)


class TestReports:
    """Callers of this process, as the admin lists them."""

    @pytest.mark.django_db(transaction=True)
    def test_a_caller_without_a_session_is_reported_once_for_each_period_of_activity(self) -> None:
        user = User.objects.create_user("carol")
        row, token = PersonalAccessToken.issue(user=user, name="one", expires=None)
        sent = AuthRequest(Headers([(b"authorization", f"Bearer {token}".encode())]))
        ACTIVE_PRINCIPALS.take()

        async def call_and_report() -> None:
            authenticator = wiring.create_authenticator("default")
            await authenticator.authenticate(sent)
            invalidation = wiring.PROCESS.principal_invalidation
            assert invalidation.report_callers()
            await invalidation._reports.wait()
            invalidation.report_callers()
            assert not invalidation._reports

        with override_settings(MCP={"AUTH": "token"}):
            async_to_sync(call_and_report)()
        (caller,) = get_reported_callers()
        assert caller[:5] == ("default", f"django|{user.pk}|token:{row.pk}", f"token:{row.pk}", str(user.pk), "token")
        assert token not in StreamEvent.objects.get(topic=CALLERS_TOPIC).payload

    def test_a_report_has_an_upper_bound(self) -> None:
        active = ActivePrincipals()
        for number in range(MAX_RECORDED_PRINCIPALS + 1):
            active.record("default", principal(client_id=str(number)))
        assert len(active.take()) == MAX_RECORDED_PRINCIPALS
        assert active.take() == []
