"""Prompts in the admin."""

import json
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.admin.models import LogEntry
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.test import Client, override_settings
from django.urls import reverse
from django.utils.html import escape

from mcp_django import prompt as declare
from mcp_django import resource, wiring
from mcp_django.admin import versions
from mcp_django.auth.principal import local_principal
from mcp_django.models import StoredArgument, StoredMessage, StoredPrompt, StoredResource
from mcp_django.server.primitives import registry
from mcp_django.transports.inprocess.client import InProcessClient
from tests.support.savepoints import rolled_back

pytestmark = pytest.mark.django_db

XSS = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"


@pytest.fixture(autouse=True)
def _servers(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two servers, on which nothing is registered."""
    monkeypatch.setattr(registry, "REGISTRIES", {})
    settings.MCP = {"AUTH": "none", "SERVERS": {"default": {}, "staff": {}, "bare": {"STORED": False}}}


def url(name: str, *args: Any) -> str:
    return reverse(f"admin:mcp_django_storedprompt_{name}", args=args)


def user(name: str, *permissions: str, **fields: Any) -> Any:
    made = get_user_model()._default_manager.create_user(name, is_staff=True, **fields)
    made.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    return made


@pytest.fixture
def browser(client: Client) -> Client:
    client.force_login(user("boss", is_superuser=True))
    return client


@pytest.fixture
def viewer(client: Client) -> Client:
    client.force_login(user("viewer", "view_storedprompt"))
    return client


def form(*texts: str, arguments: Any = (), rows: Any = None, **fields: Any) -> dict[str, Any]:
    """Build the form of a browser: `texts` are messages, or fields of them; `arguments` are names, or fields."""
    data: dict[str, Any] = {"name": "greet", "enabled": "on", **fields}
    parts = {
        "arguments": [{"name": one, "required": "on"} if isinstance(one, str) else one for one in arguments],
        "messages": [{"text": one} if isinstance(one, str) else one for one in texts],
    }
    for prefix, found in parts.items():
        initial = sum("id" in one for one in found)
        data |= {f"{prefix}-TOTAL_FORMS": len(found), f"{prefix}-INITIAL_FORMS": initial}
        for number, one in enumerate(found):
            fields = {"position": 0, **({"role": "user", "kind": "text"} if prefix == "messages" else {}), **one}
            data |= {f"{prefix}-{number}-{key}": value for key, value in fields.items()}
    return data


def save(client: Client, data: dict[str, Any], row: StoredPrompt | None = None) -> str:
    """The page after saving. Fails when it was not saved."""
    there = url("add") if row is None else url("change", row.pk)
    response = client.post(there, data, follow=True)
    assert response.redirect_chain, errors(response)
    return response.content.decode()


def errors(response: Any) -> str:
    """Return the errors of the page."""
    found = [response.context["adminform"].form.errors]
    for inline in response.context["inline_admin_formsets"]:
        found += [*inline.formset.errors, inline.formset.non_form_errors()]
    return " ".join(str(one) for one in found)


def refused(client: Client, data: dict[str, Any]) -> str:
    response = client.post(url("add"), data)
    assert response.status_code == 200
    assert not StoredPrompt.objects.exists()
    return errors(response)


def stored(text: str = "Hi $who", **fields: Any) -> StoredPrompt:
    row = StoredPrompt.objects.create(**{"name": "greet", **fields})
    StoredArgument.objects.create(prompt=row, position=1, name="who")
    StoredMessage.objects.create(prompt=row, position=1, text=text)
    row.record()
    return row


# Writing


def test_a_prompt_is_written_with_its_arguments_and_messages(browser: Client) -> None:
    tone = {"name": "tone", "choices": "kind\r\n curt \r\n\r\nkind", "default": "kind"}
    link = {"kind": "link", "uri": "docs://$who", "text": "About", "role": "assistant"}
    save(browser, form("Hi $who, $tone", link, arguments=["who", tone], tags="b, a", scopes="read"))
    row = StoredPrompt.objects.get()
    assert (row.tags, row.scopes, row.server) == (["a", "b"], ["read"], "")
    found = row.snapshot()
    assert [(one["name"], one["required"], one["choices"]) for one in found["arguments"]] == [
        ("who", True, []),
        ("tone", False, ["kind", "curt"]),
    ]
    assert [(one["role"], one["text"]) for one in found["messages"]] == [
        ("user", "Hi $who, $tone"),
        ("assistant", "About"),
    ]
    version = row.versions.get()
    assert (version.number, version.username, version.data) == (1, "boss", found)


def test_messages_are_numbered_from_one_in_the_chosen_order(browser: Client) -> None:
    texts = [{"text": "last"}, {"text": "second", "position": 7}, {"text": "first", "position": 3}]
    save(browser, form(*texts))
    found = StoredMessage.objects.values_list("position", "text")
    assert list(found) == [(1, "first"), (2, "second"), (3, "last")]


def test_values_that_clients_cannot_use_are_refused_with_the_reason(browser: Client, subtests: pytest.Subtests) -> None:
    cases = (
        (form("Hi $whom", arguments=["who"]), "Invalid placeholder $whom. Did you mean $who?"),
        (form({"kind": "link", "uri": "docs://$whom"}, arguments=["who"]), "Invalid placeholder $whom"),
        (form("costs $5"), "write $$ for a dollar sign"),
        (form("Hi $who", arguments=[{"name": "who", "DELETE": "on"}]), "Invalid placeholder $who"),
        (form(), "at least one message"),
        (form({"text": "Hi", "DELETE": "on"}), "at least one message"),
        (form("Hi", name="two words"), "1 to 64 letters"),
        (form("Hi", arguments=["who", "who"]), "duplicate"),
        (form("Hi", arguments=["2nd"]), "does not begin with a digit"),
        (form("Hi", server="nowhere"), "nowhere"),
        (form("Hi", permission="view"), "app.codename"),
        (form("Hi", scopes='"'), "is not a scope"),
        (form("Hi", arguments=["a" + str(n) for n in range(51)]), "at most 50"),
        (form(*["Hi"] * 101), "at most 100"),
    )
    for data, complaint in cases:
        with subtests.test(data=data, complaint=complaint), rolled_back():
            assert complaint in refused(browser, data)


def test_unused_arguments_are_reported(browser: Client) -> None:
    page = save(browser, form("Hi", arguments=["who"]))
    assert "No message uses $who." in page


def test_an_unknown_permission_is_reported(browser: Client) -> None:
    assert "Unknown permission shop.nothing" in save(browser, form("Hi", permission="shop.nothing"))
    page = save(browser, form("Hi", name="other", permission="mcp_django.view_session"))
    assert "Unknown permission" not in page


def test_a_prompt_hidden_by_one_of_the_code_is_reported(browser: Client) -> None:
    @declare(server="staff")
    def greet() -> str:
        return "registered"

    page = save(browser, form("Hi"))
    assert "The server “staff” serves" in page
    assert "test_stored_prompt" in page
    listed = browser.get(url("changelist")).content.decode()
    assert '<td class="field-state">default</td>' in listed
    StoredPrompt.objects.update(server="staff")
    assert "served nowhere" in browser.get(url("changelist")).content.decode()


def test_a_prompt_of_one_server_that_replaces_one_of_all_is_reported(browser: Client) -> None:
    save(browser, form("Hi"))
    assert "serves its own entry instead" in save(browser, form("Hi", server="staff"))


def test_changes_by_code_become_a_version(browser: Client) -> None:
    row = stored()
    row.messages.update(text="Changed by code")
    save(browser, form("Hi", title="Greeting"), row)
    found = list(row.versions.order_by("number").values_list("username", "changes"))
    assert found == [("", []), ("", ["messages"]), ("boss", ["title", "messages"])]


def test_selected_prompts_are_switched_off_and_on(browser: Client) -> None:
    row = stored()
    for action, enabled in (("disable", False), ("enable", True)):
        data = {"action": action, "_selected_action": [row.pk]}
        browser.post(url("changelist"), data)
        row.refresh_from_db()
        assert (row.enabled, row.versions.first().username) == (enabled, "boss")  # type: ignore[union-attr]
    assert LogEntry.objects.count() == 2


# Versions


def test_versions_are_listed_compared_and_restored(browser: Client) -> None:
    row = stored("Hi $who\nBye")
    first = row.versions.get()
    gone = {"id": row.messages.get().pk, "text": "Hi $who", "DELETE": "on"}
    argument = {"id": row.arguments.get().pk, "name": "who", "required": "on"}
    save(browser, form(gone, "Hello $who", arguments=[argument], title="Greeting"), row)
    page = browser.get(url("versions", row.pk)).content.decode()
    assert '<span translate="no">title, messages</span>' in page
    page = browser.get(url("version", row.pk, 2)).content.decode()
    assert '<div class="added">title: Greeting</div>' in page
    assert '<div class="removed">        Bye</div>' in page
    assert '<div class="added">    text: Hello $who</div>' in page
    response = browser.post(url("version", row.pk, first.number), follow=True)
    assert "Version 1 is restored." in response.content.decode()
    restored = row.versions.first()
    assert (restored.number, restored.username, restored.data) == (3, "boss", first.data)
    assert "Restored from version 1" in restored.note
    assert StoredPrompt.objects.get().snapshot() == first.data
    assert "Restored from version 1" in LogEntry.objects.latest("pk").change_message
    again = browser.post(url("version", row.pk, 3), follow=True)
    assert "the current state is the same" in again.content.decode()
    assert row.versions.count() == 3


def test_a_get_request_restores_nothing(browser: Client) -> None:
    row = stored()
    row.title = "x"
    row.save()
    browser.get(url("version", row.pk, 1))
    row.refresh_from_db()
    assert row.title == "x"


def test_a_version_that_cannot_be_restored_gives_the_reason(browser: Client) -> None:
    row = stored()
    row.name = "welcome"
    row.save()
    stored()
    page = browser.post(url("version", row.pk, 1), follow=True).content.decode()
    assert "This server already has a prompt with this name." in page
    assert StoredPrompt.objects.filter(name="welcome").exists()


def test_versions_of_other_prompts_and_absent_versions_are_not_found(browser: Client) -> None:
    row, other = stored(), stored(name="other")
    other.title = "x"
    other.save()
    other.record()
    assert browser.get(url("version", row.pk, 2)).status_code == 404
    assert browser.get(url("versions", 0)).status_code == 404


def test_versions_that_differ_in_too_much_are_not_compared(browser: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "MAX_COMPARED_LINES", 5)
    row = stored("\n".join(f"old {n}" for n in range(9)))
    row.messages.update(text="\n".join(f"new {n}" for n in range(9)))
    row.record()
    assert "too many differences" in browser.get(url("version", row.pk, 2)).content.decode()


def test_the_order_of_json_keys_is_no_difference() -> None:
    data = stored("Hi\nthere").snapshot()
    other = dict(reversed(data.items()))
    other["messages"] = [dict(reversed(message.items())) for message in data["messages"]]
    assert versions.compare_snapshots(data, other) == []
    assert versions.render_snapshot(other)[0] == "name: greet"


# Preview


def preview(client: Client, row: StoredPrompt, **arguments: str) -> Any:
    data = {f"argument-{name}": value for name, value in arguments.items()}
    return client.post(url("preview", row.pk), data).context["preview"]


def test_a_preview_equals_the_result_of_a_client(browser: Client) -> None:
    row = stored("Hi $who")
    StoredMessage.objects.create(prompt=row, position=2, kind="resource", uri="docs://a", role="assistant")
    StoredMessage.objects.create(prompt=row, position=3, kind="link", uri="docs://$who", text="More")
    resource("docs://a")(lambda: "embedded")
    caller = InProcessClient(wiring.get_server(), local_principal())
    params = {"name": "greet", "arguments": {"who": "$who\nAda"}}
    got = async_to_sync(caller.request)("prompts/get", params)
    found = preview(browser, row, who="$who\r\nAda")
    assert json.loads(found.raw) == got
    assert [block.text for block in found.blocks] == ["Hi $who\nAda", "embedded", "More\ndocs://%24who%0AAda"]


def test_a_preview_begins_with_samples(browser: Client) -> None:
    row = stored("Hi $who, $tone")
    StoredArgument.objects.create(prompt=row, position=2, name="tone", choices=["kind", "curt"])
    response = browser.get(url("preview", row.pk))
    assert response.context["preview"].blocks[0].text == "Hi «who», kind"
    assert '<option value="curt">' in response.content.decode()


def test_a_preview_shows_the_error_of_a_client(browser: Client) -> None:
    row = stored()
    assert preview(browser, row).error == "missing argument 'who'"
    StoredMessage.objects.create(prompt=row, position=2, kind="resource", uri="docs://gone")
    assert "docs://gone" in preview(browser, row, who="x").error


def test_unserved_prompts_have_a_preview(browser: Client) -> None:
    row = stored(enabled=False, permission="shop.view_order", scopes=["read"], server="staff")
    assert preview(browser, row, who="Ada").blocks[0].text == "Hi Ada"


def test_a_preview_embeds_only_what_its_user_may_read(viewer: Client) -> None:
    row = stored()
    StoredMessage.objects.create(prompt=row, position=2, kind="resource", uri="docs://secret")
    StoredResource.objects.create(uri="docs://secret", name="s", text="top secret", permission="shop.view_order")
    found = preview(viewer, row, who="x")
    assert "secret" not in found.raw
    assert "docs://secret" in found.error


def test_stored_texts_and_arguments_are_escaped(browser: Client) -> None:
    row = stored(XSS, title=XSS, description=XSS)
    StoredArgument.objects.create(prompt=row, name="x", title=XSS, description=XSS, position=2, choices=[XSS])
    StoredArgument.objects.create(prompt=row, name="y", position=3, default=XSS, required=False)
    StoredMessage.objects.create(prompt=row, position=2, kind="link", uri="javascript:alert(1)", text=XSS)
    StoredMessage.objects.create(prompt=row, position=3, text="$who$x$y")
    row.record(get_user_model()._default_manager.create_user(XSS), note=XSS)
    pages = [
        browser.get(url("changelist")),
        browser.get(url("change", row.pk)),
        browser.get(url("versions", row.pk)),
        browser.get(url("version", row.pk, 2)),
        browser.get(url("preview", row.pk)),
        browser.post(url("preview", row.pk), {"argument-who": XSS, "argument-x": XSS, "_server": XSS}),
    ]
    for page in pages:
        text = page.content.decode()
        assert page.status_code == 200
        assert "<script>alert" not in text
        assert "<img src=x" not in text
        assert 'href="javascript:' not in text
        assert escape(XSS) in text


# Permissions


def test_staff_with_view_permission_cannot_change_or_restore(viewer: Client) -> None:
    row = stored()
    row.title = "x"
    row.save()
    row.record()
    before = row.snapshot()
    for name, args in (("changelist", []), ("change", [row.pk]), ("versions", [row.pk]), ("version", [row.pk, 1])):
        page = viewer.get(url(name, *args))
        assert page.status_code == 200
        assert "Restore this version" not in page.content.decode()
        assert 'name="_save"' not in page.content.decode()
    assert "Hi $who" in viewer.get(url("change", row.pk)).content.decode()
    assert viewer.post(url("version", row.pk, 1)).status_code == 403
    assert viewer.post(url("change", row.pk), form("Hacked")).status_code == 403
    assert viewer.post(url("add"), form("Hacked", name="other")).status_code == 403
    viewer.post(url("changelist"), {"action": "disable", "_selected_action": [row.pk]})
    row.refresh_from_db()
    assert (row.snapshot(), row.versions.count()) == (before, 2)
    assert StoredPrompt.objects.count() == 1


def test_staff_without_view_permission_get_no_page(client: Client, subtests: pytest.Subtests) -> None:
    for permissions in ([], ["view_storedresource", "change_storedresource"]):
        with subtests.test(permissions=permissions), rolled_back():
            row = stored()
            client.force_login(user("stranger", *permissions))
            for name, args in (
                ("changelist", []),
                ("preview", [row.pk]),
                ("versions", [row.pk]),
                ("version", [row.pk, 1]),
            ):
                assert client.get(url(name, *args)).status_code == 403
                assert client.post(url(name, *args)).status_code == 403
            client.logout()
            for name in ("preview", "versions"):
                assert client.get(url(name, row.pk)).status_code == 302
            assert client.post(url("version", row.pk, 1)).status_code == 302
            assert row.versions.count() == 1


def test_permission_to_change_prompts_includes_their_parts(client: Client) -> None:
    client.force_login(user("writer", "change_storedprompt", "view_storedprompt"))
    row = stored()
    save(client, form("Bye $you", arguments=["you"]), row)
    assert set(row.messages.values_list("text", flat=True)) == {"Hi $who", "Bye $you"}
    assert client.post(url("version", row.pk, 1)).status_code == 302
    assert row.versions.count() == 3
    assert client.post(url("add"), form("Hi", name="other")).status_code == 403


def test_a_form_from_another_site_restores_nothing(client: Client) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(user("boss", is_superuser=True))
    row = stored()
    row.title = "x"
    row.save()
    assert strict.post(url("version", row.pk, 1)).status_code == 403
    row.refresh_from_db()
    assert row.title == "x"


@override_settings(MCP={"SERVERS": {"default": {"STORED": False}}})
def test_the_list_warns_if_stored_prompts_are_not_served(browser: Client) -> None:
    stored()
    assert "served nowhere" in browser.get(url("changelist")).content.decode()


def test_declared_scopes_are_boxes(browser: Client, settings: Any) -> None:
    settings.MCP = {**settings.MCP, "SCOPES": {"orders:read": "Read orders", "orders:write": "Change orders"}}
    assert '<input type="checkbox" name="scopes" value="orders:read"' in browser.get(url("add")).content.decode()
    save(browser, form("Hello", scopes=["orders:read"]))
    assert StoredPrompt.objects.get().scopes == ["orders:read"]
    assert browser.post(url("add"), form("Hi", name="other", scopes=["lost"])).status_code == 200
