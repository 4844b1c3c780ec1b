import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.test import Client, override_settings
from django.urls import reverse
from django.utils import timezone

from mcp_django.models import EndReason, PersonalAccessToken, ResourceSubscription, Session, StreamEvent
from mcp_django.runtime.events.event_log import EventDraft, EventLog
from mcp_django.runtime.sessions import activity
from tests.support.savepoints import rolled_back

pytestmark = pytest.mark.django_db

LIST = "admin:mcp_django_session_changelist"


def user(name: str, *permissions: str, **fields: Any) -> Any:
    made = get_user_model()._default_manager.create_user(name, is_staff=True, **fields)
    made.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    return made


def session(of: Any = None, *, seen: float = 0, **fields: Any) -> Session:
    now = timezone.now()
    row = Session(owner="o", user=of, server="default", revision="r", expires=now + timedelta(days=1), **fields)
    row.last_seen = now - timedelta(seconds=seen)
    row.generate_key()
    row.save()
    return row


@pytest.fixture
def superuser() -> Any:
    return user("superuser", is_superuser=True)


@pytest.fixture
def browser(client: Client, superuser: Any) -> Client:
    client.force_login(superuser)
    return client


def act(client: Client, action: str, *rows: Session) -> str:
    data = {"action": action, "_selected_action": [row.pk for row in rows]}
    response = client.post(reverse(LIST), data, follow=True)
    assert response.status_code == 200
    return response.content.decode()


def live() -> set[Session]:
    return set(Session.objects.filter(terminated_at=None))


def test_the_list_shows_the_connected_users_and_clients(browser: Client) -> None:
    ada = user("ada")
    session(ada, client_info={"name": "claude-code", "version": "2.1"}, seen=125)
    page = browser.get(reverse(LIST)).content.decode()
    for text in ("claude-code 2.1", "ada", "live", "2\N{NO-BREAK SPACE}minutes ago"):
        assert text in page


def test_the_state_is_next_to_the_client_and_a_single_server_is_not_named(browser: Client) -> None:
    session()
    columns = re.findall(r'<th scope="col" class="[^"]*column-(\w+)', browser.get(reverse(LIST)).content.decode())
    assert columns[:2] == ["client", "state"]
    assert "server" not in columns
    with override_settings(MCP={"SERVERS": {"default": {}, "staff": {"PATH": "staff"}}}):
        assert "column-server" in browser.get(reverse(LIST)).content.decode()


def test_every_filter_link_has_a_text(browser: Client) -> None:
    session()
    Session.objects.filter(pk=session().pk).end(EndReason.CLIENT)
    page = browser.get(reverse(LIST)).content.decode()
    assert not re.findall(r"<a href=\"\?[^>]*>\s*</a>", page)
    assert "ended by the client" in page
    for value, count in (("none", 1), ("client", 1), ("admin", 0)):
        found = browser.get(reverse(LIST), {"end_reason": value}).context["cl"].result_list
        assert len(found) == count


def test_an_ended_session_has_no_open_streams_despite_reports_of_processes(browser: Client) -> None:
    row = session()
    report("one", **{f"s{row.pk}": [2, 1]})
    Session.objects.filter(pk=row.pk).end(EndReason.ADMIN)
    page = browser.get(reverse(LIST)).content.decode()
    assert (cells(page, "calls"), cells(page, "streams")) == (["0"], ["0"])
    assert not browser.get(reverse(LIST), {"activity": "open"}).context["cl"].result_list
    assert browser.get(reverse(LIST), {"activity": "none"}).context["cl"].result_list


def test_a_session_is_ended_on_its_own_page_after_a_confirmation(browser: Client) -> None:
    row, kept = session(), session()
    change = reverse("admin:mcp_django_session_change", args=[row.pk])
    end = reverse("admin:mcp_django_session_end", args=[row.pk])
    assert f'<a href="{end}">End session</a>' in browser.get(change).content.decode()
    assert "has to connect again" in browser.get(end).content.decode()
    assert live() == {row, kept}

    response = browser.post(end, follow=True)
    assert response.redirect_chain == [(change, 302)]
    assert "The session was ended." in response.content.decode()
    assert end not in response.content.decode()
    assert live() == {kept}
    assert LogEntry.objects.get().object_id == str(row.pk)
    assert browser.get(reverse("admin:mcp_django_session_end", args=[10**6])).status_code == 404


def test_ending_on_the_page_needs_the_change_permission(client: Client) -> None:
    row = session()
    end = reverse("admin:mcp_django_session_end", args=[row.pk])
    client.force_login(user("viewer", "view_session"))
    assert end not in client.get(reverse("admin:mcp_django_session_change", args=[row.pk])).content.decode()
    assert client.post(end).status_code == 403
    assert live() == {row}


def test_the_page_of_a_session_uses_words(browser: Client) -> None:
    ada = user("ada")
    token = PersonalAccessToken.issue(user=ada, name="CI job", expires=None)[0]
    row = session(ada, client_capabilities={"sampling": {}, "elicitation": {"form": {}, "url": {}}})
    Session.objects.filter(pk=row.pk).update(owner=f"django|{ada.pk}|token:{token.pk}")
    page = browser.get(reverse("admin:mcp_django_session_change", args=[row.pk])).content.decode()
    assert "elicitation (form, url), sampling" in page
    url = reverse("admin:mcp_django_personalaccesstoken_change", args=[token.pk])
    assert f'<a href="{url}">token CI job</a>' in page
    assert page.count("field-client") == 1


def test_the_key_s_hash_is_nowhere(browser: Client) -> None:
    row = session()
    pages = [reverse(LIST), reverse("admin:mcp_django_session_change", args=[row.pk])]
    for page in pages:
        assert row.key_hash not in browser.get(page).content.decode()


def test_client_info_is_escaped(browser: Client) -> None:
    row = session(client_info={"name": "<script>alert(1)</script>", "version": ["odd"]})
    for page in (reverse(LIST), reverse("admin:mcp_django_session_change", args=[row.pk])):
        assert "<script>alert(1)" not in browser.get(page).content.decode()


def test_a_client_without_client_info_is_listed_by_its_key(browser: Client, subtests: pytest.Subtests) -> None:
    for info in ({}, [], None, "x", {"name": None}):
        with subtests.test(info=info), rolled_back():
            row = session(client_info=info if info is not None else {})
            assert row.key_prefix in browser.get(reverse(LIST)).content.decode()


def test_sessions_of_the_app_mcp_can_be_neither_made_nor_edited(browser: Client) -> None:
    row = session()
    assert browser.get(reverse("admin:mcp_django_session_add")).status_code == 403
    change = reverse("admin:mcp_django_session_change", args=[row.pk])
    assert 'name="_save"' not in browser.get(change).content.decode()
    assert browser.post(change, {"server": "other"}).status_code == 403

    assert "MCP" in browser.get(reverse("admin:app_list", args=["mcp_django"])).content.decode()


def test_selected_sessions_are_ended(browser: Client) -> None:
    ended, kept = session(), session()
    assert "1 session was ended." in act(browser, "end_sessions", ended)
    ended.refresh_from_db()
    assert (ended.end_reason, live()) == (EndReason.ADMIN, {kept})
    assert "0 sessions were ended." in act(browser, "end_sessions", ended)


def test_all_sessions_of_the_users_are_ended(browser: Client) -> None:
    ada, bob = user("ada"), user("bob")
    selected, other = session(ada), session(ada)
    foreign, local = session(bob), session()
    assert "2 sessions were ended." in act(browser, "end_sessions_of_users", selected, local)
    assert live() == {foreign, local}
    assert other not in live()


def test_sessions_without_a_user_are_listed_without_owner(browser: Client) -> None:
    row = session()
    assert "have no user" in act(browser, "end_sessions_of_users", row)
    assert live() == {row}


def test_ending_sessions_needs_the_change_permission(client: Client) -> None:
    row = session()
    client.force_login(user("viewer", "view_session"))
    assert "end_sessions" not in client.get(reverse(LIST)).content.decode()
    act(client, "end_sessions", row)
    assert live() == {row}
    client.force_login(user("keeper", "view_session", "change_session"))
    act(client, "end_sessions", row)
    assert live() == set()


def test_the_list_can_be_narrowed_to_a_state(browser: Client, subtests: pytest.Subtests) -> None:
    for state, expected in (("live", {"live"}), ("over", {"idle", "ended"})):
        with subtests.test(state=state, expected=expected), rolled_back():
            rows = {"live": session(), "idle": session(seen=4000), "ended": session()}
            Session.objects.filter(pk=rows["ended"].pk).end("client")
            found = browser.get(reverse(LIST), {"state": state}).context["cl"].result_list
            assert {name for name, row in rows.items() if row in found} == expected


def test_the_list_can_be_searched_by_user(browser: Client) -> None:
    row, _ = session(user("ada")), session(user("bob"))
    assert list(browser.get(reverse(LIST), {"q": "ada"}).context["cl"].result_list) == [row]


def test_a_user_with_sessions_can_be_deleted(browser: Client) -> None:
    ada = user("ada")
    session(ada)
    browser.post(reverse("admin:auth_user_delete", args=[ada.pk]), {"post": "yes"})
    assert not Session.objects.exists()


def report(by: str, **sessions: list[int]) -> None:
    """Save the report of a process about its open streams, by primary key."""
    data = {"by": by, "sessions": {pk.removeprefix("s"): found for pk, found in sessions.items()}}
    EventLog().append([EventDraft(activity.ACTIVITY_TOPIC, activity.ACTIVITY_KIND, data)])


def cells(page: str, name: str) -> list[str]:
    """The column of a list."""
    return re.findall(rf'<td class="field-{name}[^"]*">([^<]*)</td>', page)


def test_the_list_counts_open_streams_of_all_processes(browser: Client) -> None:
    busy, idle = session(seen=10), session(seen=20)
    report("one", **{f"s{busy.pk}": [2, 1]})
    report("two", **{f"s{busy.pk}": [9, 0]})
    report("two", **{f"s{busy.pk}": [1, 0]})  # the last report of a process counts
    page = browser.get(reverse(LIST), {"o": "-5"}).content.decode()
    assert sorted(cells(page, "calls")) == ["0", "3"]
    assert sorted(cells(page, "streams")) == ["0", "1"]
    for wanted, rows in (("open", [busy]), ("none", [idle])):
        response = browser.get(reverse(LIST), {"activity": wanted})
        assert list(response.context["cl"].result_list) == rows


def test_open_streams_are_queried_once_for_a_page(browser: Client, django_assert_max_num_queries: Any) -> None:
    for _ in range(30):
        session()
    with django_assert_max_num_queries(20) as captured:
        browser.get(reverse(LIST))
    assert sum(StreamEvent._meta.db_table in query["sql"] for query in captured.captured_queries) == 1


def test_the_page_of_a_session_shows_its_open_streams(browser: Client) -> None:
    row, other = session(), session()
    report("one", **{f"s{row.pk}": [2, 1]})
    ResourceSubscription.objects.create(session=row, uri="a://b", uri_hash="h")
    topics = [f"session:{row.pk}", f"stream:{row.pk}:token", f"session:{other.pk}", f"stream:{other.pk}:x"]
    EventLog().append([EventDraft(topic, "message") for topic in [*topics, f"session:{row.pk}1"]])
    page = browser.get(reverse("admin:mcp_django_session_change", args=[row.pk])).content.decode()
    found = dict(re.findall(r'field-(calls|streams|subscriptions|events)".*?readonly">(\d+)<', page, re.DOTALL))
    assert found == {"calls": "2", "streams": "1", "subscriptions": "1", "events": "2"}


def test_sessions_are_found_by_client_name(browser: Client) -> None:
    mine = session(client_info={"name": "claude-code", "version": "2"})
    session(client_info={"name": "inspector"})
    session(client_info={})
    found = browser.get(reverse(LIST), {"q": "claude"}).context["cl"].result_list
    assert list(found) == [mine]


@pytest.mark.django_db(transaction=True)
def test_the_end_of_a_session_is_published_to_all_processes(browser: Client) -> None:
    row = session()
    act(browser, "end_sessions", row)
    data = StreamEvent.objects.order_by("seq").values_list("topic", "kind")
    assert list(data) == [(f"session:{row.pk}", "ended"), ("sessions", "ended")]


@pytest.mark.django_db(transaction=True)
def test_the_sessions_of_a_deleted_user_are_published_to_all_processes(browser: Client) -> None:
    ada = user("ada")
    row = session(ada)
    browser.post(reverse("admin:auth_user_delete", args=[ada.pk]), {"post": "yes"})
    data = StreamEvent.objects.filter(kind="ended").order_by("seq").values_list("topic", "payload")
    reason = '"reason":"deleted"'
    assert list(data) == [(f"session:{row.pk}", f"{{{reason}}}"), ("sessions", f'{{"session":{row.pk},{reason}}}')]


def test_hidden_characters_of_a_client_are_not_displayed(browser: Client) -> None:
    row = session(client_info={"name": "claude\u202e-code\u200b", "version": "2\n1", "title": "x\u2066"})
    assert "claude-code 2 1" in browser.get(reverse(LIST)).content.decode()
    for page in (reverse(LIST), reverse("admin:mcp_django_session_change", args=[row.pk])):
        shown = browser.get(page).content.decode()
        assert not set("\u202e\u200b\u2066") & set(shown)


def report_callers(by: str, *callers: list[Any]) -> None:
    """Report the callers of a process."""
    EventLog().append([EventDraft(activity.CALLERS_TOPIC, activity.CALLERS_KIND, {"by": by, "callers": [*callers]})])


def test_callers_without_a_session_are_listed(browser: Client) -> None:
    ada = user("ada")
    token = PersonalAccessToken.issue(user=ada, name="CI job", expires=None)[0]
    key = f"django|{ada.pk}|token:{token.pk}"
    row = session(ada)
    Session.objects.filter(pk=row.pk).update(owner="django|9|<b>")
    report_callers("one", ["default", key, f"token:{token.pk}", str(ada.pk), "token"])
    report_callers("two", ["default", key, f"token:{token.pk}", str(ada.pk), "token"])
    report_callers("two", ["default", "django|9|<b>", "<b>", None, "oauth"])

    callers = reverse("admin:mcp_django_session_callers")
    assert f'href="{callers}"' in browser.get(reverse(LIST)).content.decode()
    page = browser.get(callers).content.decode()
    found = re.findall(r'<th scope="row">(.*?)</th>\s*<td>(.*?)</td>', page)
    assert sorted(found) == [("ada", "token CI job"), ("django|9|&lt;b&gt;", "&lt;b&gt;")]
    assert page.count("<td>none</td>") == 1


def test_earlier_callers_are_left_out(browser: Client) -> None:
    report_callers("one", ["default", "k", "", None, "token"])
    StreamEvent.objects.update(created=timezone.now() - activity.CALLER_WINDOW)
    assert "No caller was active." in browser.get(reverse("admin:mcp_django_session_callers")).content.decode()


def test_callers_need_the_permission_to_view_sessions(client: Client) -> None:
    client.force_login(user("clerk", "view_personalaccesstoken"))
    assert client.get(reverse("admin:mcp_django_session_callers")).status_code == 403


def test_an_empty_list_explains_how_a_client_connects(browser: Client) -> None:
    assert "manage.py mcp_install" in browser.get(reverse(LIST)).content.decode()
    session()
    assert "manage.py mcp_install" not in browser.get(reverse(LIST)).content.decode()
