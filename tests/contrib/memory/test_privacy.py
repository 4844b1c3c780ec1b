"""Export and deletion of the rows of a user."""

import json
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command

from mcp_django import owner_of
from mcp_django.contrib.memory.conversations import ConversationStore
from mcp_django.contrib.memory.facts import FactStore
from mcp_django.contrib.memory.models import Conversation, Fact, Owner
from mcp_django.contrib.memory.privacy import erase_user, export_user
from tests.contrib.memory.clients import user_messages
from tests.support.savepoints import rolled_back

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada() -> User:
    return User.objects.create_user("ada")


@pytest.fixture
def bob() -> User:
    return User.objects.create_user("bob")


def keep(owner: str | None, user: User | None = None) -> None:
    """Save a conversation and a fact."""
    ConversationStore(owner, user).save(user_messages("Hello", "é"), id="c", tags=["t"], metadata={"k": 1})
    FactStore(owner, user).save("Likes tea.", id="f", category="drinks", days=1)


def kept() -> tuple[int, int, int]:
    return Owner.objects.count(), Conversation.objects.count(), Fact.objects.count()


def test_an_export_has_all_rows_of_the_user_under_every_issuer(ada: User, bob: User) -> None:
    keep(owner_of(ada), ada)
    keep("https://as|ada", ada)
    keep(owner_of(bob), bob)
    said = export_user(ada)
    assert (said["user"], [owner["owner"] for owner in said["owners"]]) == ("ada", [owner_of(ada), "https://as|ada"])
    conversation, fact = said["owners"][0]["conversations"][0], said["owners"][0]["facts"][0]
    assert {key: conversation[key] for key in ("id", "title", "tags", "metadata", "expires")} == {
        "id": "c",
        "title": "Hello",
        "tags": ["t"],
        "metadata": {"k": 1},
        "expires": None,
    }
    assert [message["content"] for message in conversation["messages"]] == ["Hello", "é"]
    assert (fact["text"], fact["category"], fact["expires"] > fact["updated"]) == ("Likes tea.", "drinks", True)
    assert json.loads(json.dumps(said)) == said


def test_expired_rows_are_exported_until_they_are_deleted(ada: User) -> None:
    keep(owner_of(ada), ada)
    Fact.objects.update(expires="2020-01-01T00:00:00Z")
    assert len(export_user(ada)["owners"][0]["facts"]) == 1


def test_erasing_deletes_all_rows_of_the_user_and_no_others(ada: User, bob: User, collect_notifications: Any) -> None:
    for owner, user in ((owner_of(ada), ada), ("https://as|ada", ada), (owner_of(bob), bob)):
        keep(owner, user)
    with collect_notifications() as news:
        assert erase_user(ada) == (2, 2)
    uris = ["memory://facts", "memory://conversations/c"]
    assert news == [(owner, uri) for owner in (owner_of(ada), "https://as|ada") for uri in uris]
    assert kept() == (1, 1, 1)
    assert erase_user(ada) == (0, 0)
    assert Owner.objects.get().user == bob


def test_deleting_a_user_erases_the_memory_of_the_user(ada: User, bob: User, subtests: pytest.Subtests) -> None:
    for delete in ("one", "several"):
        with subtests.test(delete=delete), rolled_back():
            user = User.objects.get(pk=ada.pk)
            keep(owner_of(user), user)
            keep("https://as|ada", user)
            keep(owner_of(bob), bob)
            Owner.objects.filter(key=owner_of(user)).update(user=None)
            if delete == "one":
                user.delete()
            else:
                User.objects.filter(pk=user.pk).delete()
            assert kept() == (1, 1, 1)
            assert Owner.objects.get().key == owner_of(bob)


def test_erasing_anonymous_callers_erases_no_rows() -> None:
    keep("https://as|robot")
    assert erase_user(AnonymousUser()) == (0, 0)
    assert export_user(AnonymousUser())["owners"] == []
    assert kept() == (1, 1, 1)


def test_a_credential_of_a_deleted_user_saves_nothing(ada: User) -> None:
    owner = owner_of(ada)
    before = User.objects.get(pk=ada.pk)
    ada.delete()
    with pytest.raises(ValidationError, match="requires an authenticated caller"):
        FactStore(owner, before).save("x")
    assert kept() == (0, 0, 0)


def test_a_user_object_of_another_model_is_not_linked() -> None:
    class ForeignUser:
        pk = 4711

    FactStore("as|1", ForeignUser()).save("x")
    assert Owner.objects.get().user is None


def test_an_owner_can_be_linked_to_a_user_later(ada: User) -> None:
    FactStore("as|1").save("x")
    FactStore("as|1", ada).save("y")
    assert Owner.objects.get().user == ada
    FactStore("as|1").save("z")
    assert Owner.objects.get().user == ada


def run(command: str, *arguments: str) -> str:
    out = StringIO()
    call_command(command, *arguments, stdout=out)
    return out.getvalue()


def test_the_commands_export_and_erase_a_user(ada: User) -> None:
    keep(owner_of(ada), ada)
    assert json.loads(run("mcp_memory_export", "ada"))["owners"] == export_user(ada)["owners"]
    assert run("mcp_memory_export", "ada", "--indent", "0").count("\n") == 1
    assert run("mcp_memory_erase", "ada", "--noinput") == "Erased conversations: 1, facts: 1.\n"
    assert json.loads(run("mcp_memory_export", "ada")) == {"user": "ada", "owners": []}


def test_the_commands_know_owners_who_are_no_users() -> None:
    keep("https://as|robot")
    keep("https://as|other")
    assert [
        owner["owner"] for owner in json.loads(run("mcp_memory_export", "--owner", "https://as|robot"))["owners"]
    ] == ["https://as|robot"]
    run("mcp_memory_erase", "--owner", "https://as|robot", "--noinput")
    assert [owner.key for owner in Owner.objects.all()] == ["https://as|other"]


def test_erasing_requires_confirmation(ada: User, subtests: pytest.Subtests) -> None:
    def check(answer: str, left: int, monkeypatch: pytest.MonkeyPatch) -> None:
        keep(owner_of(ada), ada)
        asked: list[str] = []
        monkeypatch.setattr("builtins.input", lambda text: asked.append(text) or answer)  # type: ignore[func-returns-value]
        if left:
            with pytest.raises(CommandError, match="Nothing was erased"):
                run("mcp_memory_erase", "ada")
        else:
            run("mcp_memory_erase", "ada")
        assert asked == ["Erase the memory of ada permanently? Type 'yes': "]
        assert Owner.objects.count() == left

    for answer, left in (("yes", 0), ("y", 1), ("", 1)):
        with subtests.test(answer=answer, left=left), rolled_back(), pytest.MonkeyPatch.context() as monkeypatch:
            check(answer, left, monkeypatch)


def test_the_commands_refuse_unknown_users_and_owners(subtests: pytest.Subtests) -> None:
    for command in ("mcp_memory_export", "mcp_memory_erase"):
        with subtests.test(command=command), rolled_back():
            with pytest.raises(CommandError, match="Unknown user 'nobody'"):
                call_command(command, "nobody")
            with pytest.raises(CommandError, match="required"):
                call_command(command)
            with pytest.raises(CommandError, match="not allowed with"):
                call_command(command, "ada", "--owner", "x")
