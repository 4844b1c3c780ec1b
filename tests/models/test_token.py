from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.db.models.signals import post_save
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from mcp_django.models import PersonalAccessToken


@pytest.fixture
def user() -> Any:
    return get_user_model()._default_manager.create_user("ada")


def issue(user: Any, **options: Any) -> tuple[PersonalAccessToken, str]:
    return PersonalAccessToken.issue(**{"user": user, "name": "ci", "expires": None, **options})


@pytest.mark.django_db
class TestIssuing:
    def test_the_row_is_found_by_the_hash_of_the_token(self, user: Any) -> None:
        row, token = issue(user, scopes=["b", "a", "b"], audience="default")
        found = PersonalAccessToken.objects.get(token_hash=PersonalAccessToken.hash(token))
        assert found == row
        assert (found.user, found.name, found.scopes, found.audience) == (user, "ci", ["a", "b"], "default")

    def test_the_token_is_in_no_column_and_no_text(self, user: Any) -> None:
        row, token = issue(user)
        secret = token.removeprefix(row.prefix + "_")
        row.refresh_from_db()
        assert secret not in f"{vars(row)} {row!r} {row}"
        assert row.token_hash not in f"{row!r} {row}"

    def test_the_prefix_is_shown_to_users(self, user: Any) -> None:
        row, token = issue(user)
        assert token.startswith(row.prefix)
        assert row.prefix.startswith("mcp_pat_")
        assert str(row) == f"ci ({row.prefix}…)"

    def test_a_scope_that_is_none_is_refused(self, subtests: pytest.Subtests, user: Any) -> None:
        for scope in ["two words", 'quo"te', "back\\slash", "", "ümlaut", 3]:
            with subtests.test(scope=scope):
                with pytest.raises(ValidationError):
                    issue(user, scopes=[scope])
                assert not PersonalAccessToken.objects.exists()

    def test_a_string_in_place_of_scopes_is_refused(self, user: Any) -> None:
        with pytest.raises(TypeError):
            issue(user, scopes="admin")

    def test_usable_means_neither_revoked_nor_expired(self, user: Any) -> None:
        now = timezone.now()
        forever, _ = issue(user)
        fresh, _ = issue(user, expires=now + timedelta(days=1))
        stale, _ = issue(user, expires=now - timedelta(seconds=1))
        revoked, _ = issue(user)
        assert revoked.revoke()
        assert set(PersonalAccessToken.objects.usable()) == {forever, fresh}
        assert [token.is_usable for token in (forever, fresh, stale, revoked)] == [True, True, False, False]

    def test_revoking_sends_a_signal_and_happens_once(self, user: Any) -> None:
        row, _ = issue(user)
        received: list[Any] = []

        def record(instance: Any, **_: Any) -> None:
            received.append(instance)

        post_save.connect(record, sender=PersonalAccessToken)
        try:
            assert (row.revoke(), row.revoke()) == (True, False)
        finally:
            post_save.disconnect(record, sender=PersonalAccessToken)
        assert received == [row]

    def test_tokens_are_deleted_with_their_user(self, user: Any) -> None:
        issue(user)
        user.delete()
        assert not PersonalAccessToken.objects.exists()


def fresh() -> str:
    return PersonalAccessToken().generate_token()


def test_tokens_are_unique() -> None:
    assert len({fresh() for _ in range(200)}) == 200


def test_a_token_is_well_formed() -> None:
    assert all(PersonalAccessToken.is_well_formed(fresh()) for _ in range(50))


def test_every_changed_character_is_detected() -> None:
    token = fresh()
    for place in range(len(token)):
        other = "a" if token[place] != "a" else "b"
        assert not PersonalAccessToken.is_well_formed(token[:place] + other + token[place + 1 :])


@given(st.text(max_size=80))
def test_other_strings_are_not_well_formed(text: str) -> None:
    assert not PersonalAccessToken.is_well_formed(text)
    assert not PersonalAccessToken.is_well_formed(f"mcp_pat_{text}")
    assert len(PersonalAccessToken.hash(text)) == 64
