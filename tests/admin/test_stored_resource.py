"""Resources in the admin."""

from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from mcp_django import resource
from mcp_django.admin import stored_resource
from mcp_django.models import StoredResource
from mcp_django.server.primitives import registry
from tests.support.savepoints import rolled_back

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _nothing_registered(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    monkeypatch.setattr(registry, "REGISTRIES", {})
    settings.MCP = {"AUTH": "none"}


def url(name: str, *args: Any) -> str:
    return reverse(f"admin:mcp_django_storedresource_{name}", args=args)


def login(client: Client, *permissions: str, **fields: Any) -> Client:
    made = get_user_model()._default_manager.create_user("somebody", is_staff=True, **fields)
    made.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client.force_login(made)
    return client


@pytest.fixture
def browser(client: Client) -> Client:
    return login(client, is_superuser=True)


def form(**fields: Any) -> dict[str, Any]:
    return {"uri": "docs://a", "name": "A", "enabled": "on", **fields}


def save(client: Client, row: StoredResource | None = None, **fields: Any) -> str:
    there = url("add") if row is None else url("change", row.pk)
    response = client.post(there, form(**fields), follow=True)
    assert response.redirect_chain, response.context["adminform"].form.errors
    return response.content.decode()


def upload(name: str, content: bytes) -> SimpleUploadedFile:
    return SimpleUploadedFile(name, content, content_type="text/html")


def test_a_text_is_written(browser: Client) -> None:
    save(browser, text="Hi", mime_type="text/markdown", audience="user assistant", priority="0.5", tags="b a")
    row = StoredResource.objects.get()
    assert (row.content, row.mime_type, row.tags, row.priority) == ("Hi", "text/markdown", ["a", "b"], 0.5)
    assert row.versions.get().username == "somebody"


def test_a_file_is_uploaded_kept_and_removed(browser: Client) -> None:
    save(browser, upload=upload("logo.png", b"\x89PNG\xff"))
    row = StoredResource.objects.get()
    assert (row.content, row.mime_type, row.text) == (b"\x89PNG\xff", "image/png", "")
    assert "5\N{NO-BREAK SPACE}bytes" in browser.get(url("change", row.pk)).content.decode()
    save(browser, row, mime_type="image/png", title="Logo")
    row.refresh_from_db()
    assert row.content == b"\x89PNG\xff"
    save(browser, row, mime_type="", remove_file="on", text="gone")
    row.refresh_from_db()
    assert (row.content, row.data) == ("gone", None)
    changes = list(row.versions.order_by("number").values_list("changes", flat=True))
    assert changes == [[], ["title"], ["title", "mime_type", "text", "data"]]


def test_a_text_file_is_stored_as_text(browser: Client, subtests: pytest.Subtests) -> None:
    cases = (
        ("a.md", "ä".encode(), "ä"),
        ("a.json", b"{}", "{}"),
        ("a.txt", b"\xef\xbb\xbfx", "x"),
        ("a.txt", b"\xff", b"\xff"),
        ("a.txt", b"a\0b", b"a\0b"),
        ("a.bin", b"text", b"text"),
    )
    for name, content, expected in cases:
        with subtests.test(name=name, content=content, expected=expected), rolled_back():
            save(browser, upload=upload(name, content), text="before" if isinstance(expected, str) else "")
            assert StoredResource.objects.get().content == expected


def test_a_file_can_replace_another_file_or_a_text(browser: Client) -> None:
    save(browser, text="text")
    row = StoredResource.objects.get()
    save(browser, row, text="text", upload=upload("a.bin", b"1"))
    save(browser, row, upload=upload("b.bin", b"22"))
    row.refresh_from_db()
    assert (row.content, row.text, row.size) == (b"22", "", 2)


def test_values_that_clients_cannot_use_are_refused(browser: Client, subtests: pytest.Subtests) -> None:
    for fields, complaint in (
        ({"uri": "no uri"}, "A URI looks like"),
        ({"mime_type": "x"}, "A MIME type looks like"),
        ({"priority": "2"}, "less than or equal to 1"),
        ({"name": ""}, "required"),
    ):
        with subtests.test(fields=fields, complaint=complaint), rolled_back():
            response = browser.post(url("add"), form(**fields))
            assert complaint in str(response.context["adminform"].form.errors)
            assert not StoredResource.objects.exists()


def test_a_file_that_is_too_large_is_refused(browser: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_resource, "MAX_FILE_BYTES", 3)
    response = browser.post(url("add"), form(upload=upload("a.bin", b"1234")))
    assert "too large" in str(response.context["adminform"].form.errors)


def test_a_resource_hidden_by_one_of_the_code_is_reported(browser: Client) -> None:
    resource("docs://{name}")(lambda name: name)
    assert "serves tests.admin.test_stored_resource" in save(browser, text="x")
    assert "served nowhere" in browser.get(url("changelist")).content.decode()


def test_a_preview_equals_the_contents_for_a_client(browser: Client) -> None:
    row = StoredResource.objects.create(uri="docs://a", name="a", text="<b>x</b>", enabled=False, permission="a.b")
    response = browser.get(url("preview", row.pk))
    (block,) = response.context["preview"].blocks
    assert (block.label, block.text) == ("docs://a (text/plain)", "<b>x</b>")
    assert "<b>x</b>" not in response.content.decode()
    row.text, row.data = "", b"1234"
    row.save()
    (block,) = browser.get(url("preview", row.pk)).context["preview"].blocks
    assert (block.label, block.text) == ("docs://a (application/octet-stream)", "4 bytes")


def test_a_restored_file_is_compared_by_its_digest(browser: Client) -> None:
    save(browser, upload=upload("a.bin", b"1"))
    row = StoredResource.objects.get()
    save(browser, row, upload=upload("b.bin", b"2"))
    page = browser.get(url("version", row.pk, 1)).content.decode()
    assert "file: 1 bytes, SHA-256 6b86b273" in page
    browser.post(url("version", row.pk, 1))
    row.refresh_from_db()
    assert row.content == b"1"


def test_staff_with_view_permission_cannot_change_or_restore(client: Client, subtests: pytest.Subtests) -> None:
    for data in (None, b"1234"):
        with subtests.test(data=data), rolled_back():
            viewer = login(client, "view_storedresource")
            row = StoredResource.objects.create(uri="docs://a", name="a", text="" if data else "Hi", data=data)
            row.record()
            row.title = "x"
            row.save()
            for name, args in (
                ("changelist", []),
                ("change", [row.pk]),
                ("version", [row.pk, 1]),
                ("preview", [row.pk]),
            ):
                page = viewer.get(url(name, *args))
                assert page.status_code == 200
                assert 'name="upload"' not in page.content.decode()
            for name, args in (("change", [row.pk]), ("version", [row.pk, 1]), ("add", [])):
                assert viewer.post(url(name, *args), form(name="hacked")).status_code == 403
            row.refresh_from_db()
            assert (row.name, row.title, row.versions.count()) == ("a", "x", 1)


def test_the_list_reads_no_contents(browser: Client, django_assert_max_num_queries: Any) -> None:
    for number in range(20):
        StoredResource.objects.create(uri=f"docs://{number}", name="a", text="x")
    with django_assert_max_num_queries(12) as captured:
        browser.get(url("changelist"))
    assert not any('stored_resource"."text"' in query["sql"] for query in captured.captured_queries)
    assert not any('storedresource"."text"' in query["sql"] for query in captured.captured_queries)
