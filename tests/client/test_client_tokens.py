"""Rows with tokens: their owners, their servers, and their encryption."""

import dataclasses
import time
from typing import Any

import pytest
import time_machine
from django.contrib.auth.models import User
from django.core import serializers
from pytest_django.fixtures import Settings

from mcp_django.client.oauth.token_store import StoredGrant, TokenGrant, TokenRow
from mcp_django.models import ClientFlow, ClientToken
from tests.client.authority import ISSUER, SERVER, settings

pytestmark = pytest.mark.django_db
NOW = 1_800_000_000.0
GRANT = TokenGrant(
    issuer=ISSUER,
    access_token="access-s3cret",
    refresh_token="refresh-s3cret",
    scope="read write",
    expires_at=2_000_000_000.0,
    lifetime=3600.0,
    token_endpoint=f"{ISSUER}/token",
    client={"client_id": "c1", "client_secret": "client-s3cret"},
)


@pytest.fixture
def ada() -> User:
    return User.objects.create_user("ada")


def kept(row: TokenRow) -> TokenGrant | None:
    held = row.read()
    return None if held is None else held.grant


def test_stored_tokens_are_read_back(ada: User) -> None:
    row = TokenRow(settings(), ada)
    assert row.read() is None
    assert row.write(GRANT)
    assert row.read() == StoredGrant(generation=1, grant=GRANT)
    found = ClientToken.objects.get()
    assert (found.alias, found.server, found.user, found.issuer) == ("one", SERVER, ada, ISSUER)
    assert found.expires_at is not None
    assert found.expires_at.timestamp() == 2_000_000_000


def test_each_owner_and_server_has_a_row(ada: User) -> None:
    rows = [
        TokenRow(settings(), ada),
        TokenRow(settings(), User.objects.create_user("grace")),
        TokenRow(settings()),
        TokenRow(settings("https://mcp.example/other"), ada),
        TokenRow(settings(f"{SERVER}?key=1"), ada),
        TokenRow(dataclasses.replace(settings(), alias="two"), ada),
    ]
    for number, row in enumerate(rows):
        row.write(dataclasses.replace(GRANT, access_token=f"a{number}"))
    assert [grant.access_token for row in rows if (grant := kept(row))] == [f"a{number}" for number in range(6)]
    assert len({row.key for row in rows}) == 6


def test_a_copied_row_does_not_open(ada: User) -> None:
    mine, yours = TokenRow(settings(), ada), TokenRow(settings(), User.objects.create_user("grace"))
    mine.write(GRANT)
    yours.get_or_create()
    taken = ClientToken.objects.get(key=mine.key)
    for values in ({"issuer": ISSUER}, {"issuer": "https://evil.example"}, {}):
        ClientToken.objects.filter(key=yours.key).update(grant=taken.grant, **values)
        assert kept(yours) is None
    ClientToken.objects.filter(key=mine.key).update(issuer="https://evil.example")
    assert kept(mine) is None


def test_nothing_secret_is_shown(ada: User) -> None:
    row = TokenRow(settings(f"{SERVER}?key=s3cret"), ada)
    row.write(GRANT)
    row.save_registration({"client_id": "c1", "client_secret": "client-s3cret"})
    found = ClientToken.objects.get()
    shown = [str(found), repr(found), repr(GRANT), repr(row), serializers.serialize("json", [found]), repr(row.read())]
    assert "s3cret" not in "".join(shown)


def test_a_row_sealed_with_a_former_secret_is_sealed_with_the_new_one(ada: User, settings: Settings) -> None:
    row = TokenRow(_entry(), ada)
    row.write(GRANT)
    row.save_registration({"client_id": "c1"})
    settings.SECRET_KEY_FALLBACKS, settings.SECRET_KEY = [settings.SECRET_KEY], "another"
    assert kept(row) == GRANT
    assert row.read_registration() == {"client_id": "c1"}
    settings.SECRET_KEY_FALLBACKS = []
    assert row.read() == StoredGrant(generation=1, grant=GRANT)
    assert row.read_registration() == {"client_id": "c1"}
    settings.SECRET_KEY = "lost"
    assert row.read() == StoredGrant(generation=1, grant=None)
    assert row.read_registration() is None


def test_a_row_of_another_version_must_be_connected_again(ada: User) -> None:
    row = TokenRow(settings(), ada)
    row.write(GRANT)
    sealed = row._seal("grant", {"of": "the future"}, ISSUER)
    ClientToken.objects.update(grant=sealed)
    assert row.read() == StoredGrant(generation=1, grant=None)


def test_one_of_several_claims_the_row(ada: User) -> None:
    row = TokenRow(settings(), ada)
    row.write(GRANT)
    assert [row.claim(1), row.claim(1), row.claim(0)] == [True, False, False]
    row.release(1)
    assert row.claim(1)
    assert row.write(GRANT, expected_generation=1)
    assert not row.write(GRANT, expected_generation=1)
    assert row.claim(2)


@pytest.mark.usefixtures("clock")
def test_the_claim_of_a_dead_worker_expires(ada: User) -> None:
    row = TokenRow(settings(), ada)
    row.write(GRANT)
    assert row.claim(1)
    ended = ClientToken.objects.get().renewing_until
    assert ended is not None
    assert 0 < ended.timestamp() - time.time() <= 30
    ClientToken.objects.update(renewing_until="2020-01-01T00:00:00Z")
    assert row.claim(1)


def test_deleted_tokens_leave_a_row_that_must_be_connected_again(ada: User) -> None:
    row = TokenRow(settings(), ada)
    row.write(GRANT)
    row.clear_grant(0)
    assert kept(row) == GRANT
    row.clear_grant(1)
    row.save_missing_scopes("read admin")
    assert row.read() == StoredGrant(generation=2, grant=None, missing_scopes="read admin")
    row.write(GRANT)
    assert row.read() == StoredGrant(generation=3, grant=GRANT)


def test_a_registration_is_deleted_by_its_client_id(ada: User) -> None:
    row = TokenRow(settings())
    row.delete_registration("c1")
    row.save_registration({"client_id": "c1"})
    row.delete_registration("c0")
    assert row.read_registration() == {"client_id": "c1"}
    row.delete_registration("c1")
    assert row.read_registration() is None


def test_the_rows_of_a_user_are_deleted_with_the_user(ada: User) -> None:
    TokenRow(settings(), ada).write(GRANT)
    TokenRow(settings()).write(GRANT)
    ClientFlow.objects.create(state_hash="x", alias="one", user=ada, expires_at="2030-01-01T00:00:00Z")
    ada.delete()
    assert [row.user for row in ClientToken.objects.all()] == [None]
    assert not ClientFlow.objects.exists()


def test_a_token_is_renewed_before_it_expires(subtests: pytest.Subtests) -> None:
    for left, fresh, expired in [(600, True, False), (10, False, False), (-1, False, True)]:
        with subtests.test(left=left, fresh=fresh, expired=expired), time_machine.travel(NOW, tick=False):
            grant = dataclasses.replace(GRANT, expires_at=time.time() + left)
            assert (grant.is_fresh(), grant.is_expired()) == (fresh, expired)


@time_machine.travel(NOW, tick=False)
def test_a_short_lived_token_is_not_renewed_at_once() -> None:
    assert dataclasses.replace(GRANT, expires_at=time.time() + 9.5, lifetime=10).is_fresh()
    assert dataclasses.replace(GRANT, expires_at=None).is_fresh()


def _entry() -> Any:
    return settings()
