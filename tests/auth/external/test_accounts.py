"""The account of a subject of an identity provider."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection

from mcp_django.auth.external import accounts
from mcp_django.auth.external.claims import map_claims
from mcp_django.auth.external.verifier import ExternalVerifier
from mcp_django.models import ExternalIdentity
from tests.auth.external_issuer import is_invalid, linked, verifier_of, verify
from tests.auth.identity_provider import Provider, read_issuers, serving
from tests.support.savepoints import rolled_back
from tests.support.waiting import WAIT_SECONDS


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with serving() as provider:
        yield provider


MAIL = {"email": "ada@shop.example", "email_verified": True}


@pytest.mark.django_db
def test_a_subject_without_a_link_is_refused(provider: Provider) -> None:
    User.objects.create_user("ada", email=MAIL["email"])
    assert is_invalid(verifier_of(provider), provider.token(preferred_username="ada", **MAIL))
    assert not ExternalIdentity.objects.exists()


@pytest.mark.django_db
def test_a_subject_without_a_link_may_be_accepted_without_a_user(provider: Provider) -> None:
    who = verify(verifier_of(provider, REQUIRE_USER=False), provider.token())
    assert who.user is None
    assert not who.has_perm("auth.view_user")
    assert who.scopes == {"a", "b"}


@pytest.mark.django_db
def test_an_inactive_account_is_refused(provider: Provider, subtests: pytest.Subtests) -> None:
    for options in ({}, {"REQUIRE_USER": False}, {"LINK": ["create"]}):
        with subtests.test(options=options), rolled_back():
            linked(provider, is_active=False)
            assert is_invalid(verifier_of(provider, **options), provider.token())


@pytest.mark.django_db
def test_the_same_subject_of_two_issuers_is_two_users() -> None:
    with serving() as one, serving() as two:
        first, second = linked(one, username="one"), linked(two, username="two")
        entries = [{"ISSUER": each.issuer, "JWKS_URI": f"{each.origin}/keys"} for each in (one, two)]
        verifier = ExternalVerifier(read_issuers(*entries))
        principals = [verify(verifier, each.token()) for each in (one, two)]
        assert [who.user for who in principals] == [first, second]
        assert principals[0].key != principals[1].key
        assert principals[0].owner != principals[1].owner
        # Neither speaks for the other.
        two.keys = []
        assert is_invalid(verifier, one.token(iss=two.issuer, header={"kid": "of one alone"}))


@pytest.mark.django_db
def test_a_name_alone_never_links_a_privileged_account(provider: Provider, subtests: pytest.Subtests) -> None:
    for rights in ({"is_superuser": True}, {"is_staff": True}, {"is_active": False}):
        for way in ("email", "username"):
            with subtests.test(rights=rights, way=way), rolled_back():
                User.objects.create_user("ada", email=MAIL["email"], **rights)
                token = provider.token(preferred_username="ada", **MAIL)
                assert is_invalid(verifier_of(provider, LINK=[way]), token)
                assert not ExternalIdentity.objects.exists()


@pytest.mark.django_db
def test_the_name_of_a_superuser_creates_another_account(provider: Provider) -> None:
    root = User.objects.create_superuser("admin", email="admin@shop.example")
    token = provider.token(preferred_username="admin", email="admin@shop.example", email_verified=True)
    who = verify(verifier_of(provider, LINK=["email", "username", "create"]), token)
    assert who.user != root
    assert who.user.username.startswith("admin-")
    assert not who.user.is_superuser
    assert not who.user.is_staff
    assert not who.user.has_usable_password()


@pytest.mark.django_db
def test_a_name_links_once_with_the_setting(provider: Provider, subtests: pytest.Subtests) -> None:
    for way, claims in (("email", MAIL), ("username", {"preferred_username": "ada"})):
        with subtests.test(way=way), rolled_back():
            ada = User.objects.create_user("ada", email="Ada@shop.example")
            verifier = verifier_of(provider, LINK=[way])
            assert verify(verifier, provider.token(**claims)).user == ada
            row = ExternalIdentity.objects.get()
            assert (row.issuer, row.subject, row.user, row.origin) == (provider.issuer, "ada", ada, way)
            assert verify(verifier, provider.token()).user == ada  # the link counts from now on
            # A name that the provider gives to another subject does not link the account.
            assert is_invalid(verifier, provider.token(sub="eve", **claims))


UNVERIFIED: list[Any] = [False, None, "true", "false", 1, [True], ...]


@pytest.mark.django_db
def test_an_unverified_address_does_not_link(provider: Provider, subtests: pytest.Subtests) -> None:
    for verified in UNVERIFIED:
        with subtests.test(verified=verified), rolled_back():
            User.objects.create_user("ada", email=MAIL["email"])
            token = provider.token(**{**MAIL, "email_verified": verified})
            assert is_invalid(verifier_of(provider, LINK=["email"]), token)
            who = verify(verifier_of(provider, LINK=["create"]), token)
            assert who.user.email == ""


@pytest.mark.django_db
def test_a_similar_address_does_not_link(provider: Provider, subtests: pytest.Subtests) -> None:
    for email in ("ada@shop.example.evil", "ad\u0131@shop.example", "", "%", 7, ["ada@shop.example"]):
        with subtests.test(email=email), rolled_back():
            User.objects.create_user("ada", email="adi@shop.example")
            User.objects.create_user("empty")
            token = provider.token(email=email, email_verified=True)
            assert is_invalid(verifier_of(provider, LINK=["email"]), token)


@pytest.mark.django_db
def test_an_address_of_two_accounts_links_neither(provider: Provider) -> None:
    User.objects.create_user("ada", email=MAIL["email"])
    User.objects.create_user("ada2", email=MAIL["email"].upper())
    assert is_invalid(verifier_of(provider, LINK=["email"]), provider.token(**MAIL))


@pytest.mark.django_db
def test_usernames_are_compared_exactly(provider: Provider, subtests: pytest.Subtests) -> None:
    for username in ("Ada", "ada ", "\uff41da", "", 7, ["ada"]):
        with subtests.test(username=username), rolled_back():
            User.objects.create_user("ada")
            assert is_invalid(verifier_of(provider, LINK=["username"]), provider.token(preferred_username=username))


@pytest.mark.django_db
def test_an_account_is_created_with_the_setting(provider: Provider) -> None:
    verifier = verifier_of(provider, LINK=["create"])
    who = verify(verifier, provider.token(preferred_username="ada", **MAIL))
    assert (who.user.username, who.user.email) == ("ada", MAIL["email"])
    assert ExternalIdentity.objects.get().origin == "create"
    assert verify(verifier, provider.token(preferred_username="renamed")).user == who.user
    assert User.objects.count() == 1


@pytest.mark.django_db
def test_an_unavailable_username_is_replaced(provider: Provider, subtests: pytest.Subtests) -> None:
    for username in ("ADA", "ada\\smith", "a" * 200, "white space", "", 7, None):
        with subtests.test(username=username), rolled_back():
            taken = User.objects.create_user("ada")
            who = verify(verifier_of(provider, LINK=["create"]), provider.token(preferred_username=username))
            assert who.user != taken
            assert who.user.username != username
            who.user.full_clean(exclude=["password"])


@pytest.mark.django_db
def test_a_subject_whose_account_cannot_be_created_is_refused(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounts, "_choose_username", lambda model, claims: "white space")
    assert is_invalid(verifier_of(provider, LINK=["create"]), provider.token())
    assert not User.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_concurrent_first_requests_of_a_subject_create_one_account(provider: Provider) -> None:
    (issuer,) = read_issuers({"ISSUER": provider.issuer, "LINK": ["create"]})
    claims = map_claims(provider.claims(preferred_username="ada"), issuer)
    together = threading.Barrier(4)

    def come(_: int) -> Any:
        try:
            together.wait(WAIT_SECONDS)
            return accounts.link_user(claims, issuer)
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as threads:
        users = list(threads.map(come, range(4)))
    assert len({user.pk for user in users}) == 1
    assert User.objects.count() == ExternalIdentity.objects.count() == 1


CLAIMS = {"SUBJECT": "oid", "SCOPES": ["scp", "realm_access.roles"], "CLIENT_ID": "appid", "EXTRA": ["tid", "none"]}


@pytest.mark.django_db
def test_claims_are_read_from_the_configured_paths(provider: Provider) -> None:
    ada = linked(provider, "object-id", username="ada")
    verifier = verifier_of(provider, CLAIMS=CLAIMS, SCOPES={"Shop.Read": "read", "boss": ["read", "write"]})
    token = provider.token(
        oid="object-id",
        scp="Shop.Read Other",
        realm_access={"roles": ["boss", "x"]},
        appid="app",
        tid="t",
        scope="write",
    )
    who = verify(verifier, token)
    assert (who.user, who.subject, who.client_id) == (ada, "object-id", "app")
    assert who.scopes == {"read", "write"}
    assert dict(who.claims) == {"tid": "t"}
    assert verify(verifier, provider.token(oid="object-id", scope="write")).scopes == frozenset()
    assert is_invalid(verifier, provider.token(sub="object-id"))


SCOPE_CLAIMS: list[tuple[dict[str, Any], set[str]]] = [
    ({"scope": ...}, set()),
    ({"scope": "a  b"}, {"a", "b"}),
    ({"scope": ["a", "b", 7, "c d", ""]}, {"a", "b"}),
    ({"scope": {"a": 1}}, set()),
    ({"scope": "a", "scp": ["b"]}, {"a", "b"}),
    ({"scope": 'a"b c\\d e\tf é g'}, {"g"}),
]


@pytest.mark.django_db
def test_scopes_are_split_into_words(provider: Provider, subtests: pytest.Subtests) -> None:
    for claims, scopes in SCOPE_CLAIMS:
        with subtests.test(claims=claims), rolled_back():
            linked(provider)
            assert verify(verifier_of(provider), provider.token(**claims)).scopes == scopes
