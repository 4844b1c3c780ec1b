"""The memory in the admin."""

import re
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from mcp_django import owner_of
from mcp_django.contrib.memory.conversations import ConversationStore
from mcp_django.contrib.memory.facts import FactStore
from mcp_django.contrib.memory.models import Conversation, Fact, Owner
from tests.support.savepoints import rolled_back

pytestmark = pytest.mark.django_db
SECRET = "Zanzibar"
MODELS = ("owner", "conversation", "fact")


@pytest.fixture
def kept() -> User:
    """A user with a conversation and a fact."""
    ada = User.objects.create_user("ada")
    messages = [{"role": "user", "content": f"<b>{SECRET}</b>"}, {"role": "tool", "content": [{"type": "x"}]}]
    ConversationStore(owner_of(ada), ada).save(
        messages, id="c", title=f"Title {SECRET}", tags=["t"], metadata={"a": "é"}
    )
    FactStore(owner_of(ada), ada).save(f"Zürich {SECRET}", id="f", days=1)
    return ada


def admin_with(*permissions: str) -> Client:
    """A member of the staff with these permissions, logged in."""
    staff = User.objects.create_user("staff", is_staff=True)
    staff.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(staff)
    return client


def urls(model: str) -> dict[str, str]:
    pk = {"owner": Owner, "conversation": Conversation, "fact": Fact}[model].objects.get().pk
    base = f"admin:mcp_memory_{model}"
    return {
        "list": reverse(f"{base}_changelist"),
        "add": reverse(f"{base}_add"),
        **{name: reverse(f"{base}_{name}", args=[pk]) for name in ("change", "delete", "history")},
    }


def test_staff_with_view_permission_see_rows_and_edit_none(kept: User, subtests: pytest.Subtests) -> None:
    for model in MODELS:
        with subtests.test(model=model), rolled_back():
            client = admin_with(f"view_{model}", f"change_{model}", f"add_{model}")
            there = urls(model)
            listed, shown = client.get(there["list"]), client.get(there["change"])
            assert (listed.status_code, shown.status_code) == (200, 200)
            assert "ada" in listed.text
            assert (SECRET in listed.text, SECRET in shown.text) == (model != "owner", model != "owner")
            assert 'name="_save"' not in shown.text
            assert client.get(there["add"]).status_code == 403
            assert client.post(there["change"], {"title": "x", "text": "x", "key": "x"}).status_code == 403


def test_no_other_permission_shows_any_content(kept: User, subtests: pytest.Subtests) -> None:
    for model in MODELS:
        for verb in ("change", "delete", "add"):
            with subtests.test(model=model, verb=verb), rolled_back():
                client = admin_with(f"{verb}_{model}")
                pages = [client.get(url) for url in urls(model).values()]
                assert SECRET not in "".join(page.content.decode() for page in pages)
                assert pages[0].status_code == 403


def test_deleting_an_owner_shows_and_logs_no_content(kept: User, collect_notifications: Any) -> None:
    codenames = [f"{verb}_{model}" for model in MODELS for verb in ("delete",)]
    client = admin_with("view_owner", *codenames)
    there = urls("owner")
    page = client.get(there["delete"])
    assert page.status_code == 200
    assert SECRET not in page.text
    with collect_notifications() as news:
        assert client.post(there["delete"], {"post": "yes"}).status_code == 302
    assert not Owner.objects.exists()
    assert not Fact.objects.exists()
    assert {uri for _, uri in news} == {"memory://facts", "memory://conversations/c"}
    entry = LogEntry.objects.get()
    assert not re.search(rf"{SECRET}|ada|django\|", entry.object_repr + entry.change_message)


def test_deletions_in_the_admin_are_notified(kept: User, collect_notifications: Any, subtests: pytest.Subtests) -> None:
    for model, uri in (("fact", "memory://facts"), ("conversation", "memory://conversations/c")):
        with subtests.test(model=model, uri=uri), rolled_back():
            client = admin_with(f"view_{model}", f"delete_{model}")
            there = urls(model)
            pk = there["delete"].split("/")[-3]
            with collect_notifications() as news:
                client.post(there["list"], {"action": "delete_selected", "_selected_action": pk, "post": "yes"})
            assert news == [(owner_of(kept), uri)]
            assert SECRET not in LogEntry.objects.get().object_repr


def test_a_conversation_is_shown_escaped(kept: User) -> None:
    text = admin_with("view_conversation").get(urls("conversation")["change"]).text
    assert f"user: &lt;b&gt;{SECRET}&lt;/b&gt;" in text
    assert "&quot;a&quot;: &quot;é&quot;" in text


def test_rows_are_found_by_words_and_owner(kept: User, subtests: pytest.Subtests) -> None:
    for query in ("ZURICH", "zürich zanz", "ada", "f", "Zanzibar"):
        with subtests.test(query=query), rolled_back():
            client = admin_with("view_fact")
            other = User.objects.create_user("bob")
            FactStore(owner_of(other), other).save("Something else", id="g")
            listed = client.get(urls_of_list("fact"), {"q": query}).context["cl"]
            assert [fact.name for fact in listed.result_list] == ["f"]
            assert list(client.get(urls_of_list("fact"), {"q": "%"}).context["cl"].result_list) == []


def urls_of_list(model: str) -> str:
    return reverse(f"admin:mcp_memory_{model}_changelist")


def test_owners_are_listed_with_their_usage(kept: User, django_assert_max_num_queries: Any) -> None:
    for number in range(5):
        user = User.objects.create_user(f"user{number}")
        FactStore(owner_of(user), user).save("x")
    client = admin_with("view_owner")
    with django_assert_max_num_queries(8):
        listed = client.get(urls_of_list("owner"), {"o": "-4"}).context["cl"]
    assert len(listed.result_list) == 6
    first = listed.result_list[0]
    assert (first.user, first.conversations_kept, first.facts_kept) == (kept, 1, 1)
    assert first.bytes_kept == Fact.objects.get(name="f").size + Conversation.objects.get().size
    found = client.get(urls_of_list("owner"), {"q": "user3"}).context["cl"].result_list
    assert [owner.user.username for owner in found] == ["user3"]


def test_expired_rows_are_marked(kept: User) -> None:
    FactStore(owner_of(kept), kept).save("lasting", id="g")
    Fact.objects.filter(name="f").update(expires="2020-01-01T00:00:00Z")
    client = admin_with("view_fact")
    for value, names in (("expired", ["f"]), ("never", ["g"]), ("some day", [])):
        found = client.get(urls_of_list("fact"), {"expiry": value}).context["cl"].result_list
        assert [fact.name for fact in found] == names


def test_the_transcript_keeps_its_lines_without_inline_styles(kept: User) -> None:
    page = admin_with("view_conversation").get(urls("conversation")["change"]).content.decode()
    assert 'class="mcp-transcript"' in page
    assert not re.findall(r'<[a-z][^>]* style="', page)
    assert "mcp_django/admin.css" in page


def test_facts_without_a_category_have_a_filter_with_a_text(kept: User) -> None:
    FactStore(owner_of(kept), kept).save("Likes tea", id="g", category="taste")
    client = admin_with("view_fact")
    page = client.get(urls_of_facts := reverse("admin:mcp_memory_fact_changelist")).content.decode()
    assert "no category" in page
    assert not re.findall(r'<li[^>]*>\s*<a href="\?[^>]*>\s*</a>', page)
    (found,) = client.get(urls_of_facts, {"category": " "}).context["cl"].result_list
    assert found.category == ""
