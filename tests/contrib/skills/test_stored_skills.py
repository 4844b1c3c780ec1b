"""Stored skills: rows as clients get them, their versions, their notifications, and the admin."""

from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.core.exceptions import ValidationError
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from mcp_django.contrib.skills import StoredSkills
from mcp_django.contrib.skills.models import StoredSkill, StoredSkillFile
from mcp_django.contrib.skills.packages import check_package
from mcp_django.protocol.skills import compute_digest
from mcp_django.providers import Mount
from mcp_django.runtime.events.event_log import EventLog
from mcp_django.server.server import Server
from mcp_django.testing import SkillDocument, TestClient
from tests.contrib.skills.folders import FILES, FRONTMATTER, REFUNDS_URI, serve
from tests.server.client import make_principal

pytestmark = pytest.mark.django_db
TEXT = "---\nname: refunds\ndescription: Refund an order.\n---\n# Refunds\n"
INNER = {path.removeprefix("refunds/"): data for path, data in FILES.items()}


def store(files: dict[str, bytes] | None = None, **fields: Any) -> StoredSkill:
    """A published skill."""
    row = StoredSkill(**{"path": "shop/refunds", "enabled": True, **fields})
    row.replace_files(check_package(files or {"SKILL.md": TEXT.encode()}))
    return row


def load(server: Server, name: str = "shop/refunds", **options: Any) -> SkillDocument:
    found: SkillDocument = async_to_sync(TestClient(server, **options).skill)(name)
    return found


def uris(server: Server, principal: Any = None) -> list[str]:
    client = TestClient(server, principal=principal)
    return [entry["uri"] for entry in async_to_sync(client.request)("skills/list")["skills"]]


@pytest.fixture
def server() -> Server:
    return serve(StoredSkills())


def test_a_published_skill_has_its_exact_bytes(server: Server) -> None:
    store(INNER)
    found = load(server)
    assert found.uri == REFUNDS_URI
    assert found.frontmatter == FRONTMATTER
    assert found.files == INNER


def test_a_draft_is_hidden_from_lists_and_reads(server: Server) -> None:
    row = store(enabled=False)
    assert uris(server) == []
    with pytest.raises(Exception, match="Unknown skill"):
        load(server, REFUNDS_URI)
    row.enabled = True
    row.save()
    assert uris(server) == [REFUNDS_URI]


def test_a_change_is_served_at_the_next_request(server: Server) -> None:
    row = store({**INNER})
    before = load(server)
    other_worker = serve(StoredSkills())
    assert load(other_worker).files == before.files
    file = row.files.get(path="crlf.txt")  # type: ignore[attr-defined]
    file.data = b"new\n"
    file.save()
    for each in (server, other_worker):
        assert load(each).files == {**INNER, "crlf.txt": b"new\n"}


def test_permissions_and_scopes_apply_to_all_files(server: Server) -> None:
    store(INNER, permission="shop.view_order", scopes=["skills:read"])
    stranger = make_principal()
    assert uris(server, stranger) == []
    client = TestClient(server, principal=stranger)
    for method, uri in [
        ("skills/get", REFUNDS_URI),
        ("resources/directory/read", "skill://shop/refunds"),
        ("resources/read", REFUNDS_URI),
        ("resources/read", "skill://shop/refunds/policy.md"),
    ]:
        with pytest.raises(Exception, match=r"Unknown|not found"):
            async_to_sync(client.request)(method, {"uri": uri})
    assert uris(server) == [REFUNDS_URI]


def test_a_row_of_one_server_replaces_that_of_all(server: Server) -> None:
    store()
    store({"SKILL.md": TEXT.replace("# Refunds", "# Ours").encode()}, server="default")
    store({"SKILL.md": TEXT.replace("# Refunds", "# Theirs").encode()}, server="staff")
    assert "# Ours" in load(server).text


def test_a_mount_leaves_the_rows_of_all_servers_to_its_host() -> None:
    store()
    inner = Server("inner", providers=[StoredSkills()])
    host = serve(mounts=[Mount(inner, prefix="in")])
    assert uris(host) == []


def test_rows_that_break_a_rule_are_refused_and_not_served(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    for fields, reason in [
        ({"text": "no frontmatter"}, "must begin with a frontmatter"),
        ({"text": TEXT.replace("refunds", "Refunds")}, "name 'Refunds'"),
        ({"text": TEXT, "path": "shop/other"}, "must be the name in SKILL.md"),
        ({"text": TEXT, "path": "../refunds"}, "A path looks like"),
        ({"text": TEXT, "path": "shop/.hidden/refunds"}, "A path looks like"),
    ]:
        with pytest.raises(ValidationError, match=reason):
            StoredSkill(**{"path": "shop/refunds", **fields}).full_clean()
    row = store()
    StoredSkill.objects.filter(pk=row.pk).update(text="broken")
    assert uris(server) == []
    assert "A stored skill is not served" in caplog.text


def test_a_version_restores_the_text_and_the_files() -> None:
    row = store(INNER)
    first = row.record()
    row.replace_files(check_package({"SKILL.md": TEXT.encode()}))
    assert set(row.record().changes) == {"text", "description", "files"}
    row.restore(first)
    files = {file.path: bytes(file.data) for file in row.files.all()}  # type: ignore[attr-defined]
    assert {"SKILL.md": row.text.encode(), **files} == INNER


def test_clients_are_notified_of_changes(django_capture_on_commit_callbacks: Any) -> None:
    start = EventLog().head()
    with django_capture_on_commit_callbacks(execute=True):
        store(INNER)
    events = [(kind, payload) for _, _, kind, payload in EventLog().read(start)]
    assert ("updated", {"uri": REFUNDS_URI}) in events
    assert any(kind == "list_changed" for kind, _ in events)


# The admin


def url(name: str, *args: Any) -> str:
    return reverse(f"admin:mcp_skills_storedskill_{name}", args=args)


def login(client: Client, *permissions: str, **fields: Any) -> Client:
    user = get_user_model()._default_manager.create_user("editor", is_staff=True, **fields)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client.force_login(user)
    return client


@pytest.fixture
def browser(client: Client, settings: Any) -> Client:
    served = {
        "EXTENSIONS": ["mcp_django.contrib.skills.SkillsExtension"],
        "PROVIDERS": ["mcp_django.contrib.skills.StoredSkills"],
    }
    settings.MCP = {"AUTH": "none", "SERVERS": {"default": served}}
    return login(client, is_superuser=True)


def fill(*files: tuple[str, bytes], **fields: Any) -> dict[str, Any]:
    data: dict[str, Any] = {"path": "shop/refunds", "text": TEXT.replace("\n", "\r\n"), **fields}
    data |= {"files-TOTAL_FORMS": len(files), "files-INITIAL_FORMS": 0}
    for number, (path, content) in enumerate(files):
        data |= {f"files-{number}-path": path, f"files-{number}-upload": SimpleUploadedFile("x.bin", content)}
    return data


def test_a_skill_is_written_previewed_and_published(browser: Client) -> None:
    logo = b"\x89PNG\r\n\x1a\n\x00\xff"
    page = browser.post(url("add"), fill(("img/logo.png", logo), ("crlf.txt", b"a\r\nb")), follow=True)
    assert page.redirect_chain, page.context["errors"]
    row = StoredSkill.objects.get()
    assert (row.text, row.enabled, row.description) == (TEXT, False, "Refund an order.")
    assert {file.path: bytes(file.data) for file in StoredSkillFile.objects.all()} == {
        "crlf.txt": b"a\r\nb",
        "img/logo.png": logo,
    }
    preview = browser.get(url("preview", row.pk)).content.decode()
    assert compute_digest(logo) in preview
    assert "# Refunds" in preview
    assert browser.get(url("changelist")).status_code == 200

    browser.post(url("changelist"), {"action": "enable", "_selected_action": [row.pk]})
    row.refresh_from_db()
    assert row.enabled
    assert [version.username for version in row.versions.all()] == ["editor", "editor"]  # type: ignore[attr-defined]
    assert "file: 4 bytes" in browser.get(url("version", row.pk, 1)).content.decode()
    assert "img/logo.png" in browser.get(url("change", row.pk)).content.decode()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (fill(text="x"), "must begin with a frontmatter"),
        (fill(("SKILL.md", b"x")), "is a field of the skill"),
        (fill(("../x", b"x")), "A path looks like"),
        (fill(("a.bak", b"x")), "are never served"),
        (fill(("in/SKILL.md", b"x")), "Invalid skill"),
    ],
)
def test_an_invalid_skill_is_refused_with_the_reason(browser: Client, data: dict[str, Any], reason: str) -> None:
    assert reason in browser.post(url("add"), data).content.decode()
    assert not StoredSkill.objects.exists()


def test_the_files_follow_the_permissions_of_the_skill(client: Client) -> None:
    row = store(INNER)
    login(client, "view_storedskill")
    page = client.get(url("change", row.pk)).content.decode()
    assert "crlf.txt" in page
    assert "files-0-upload" not in page
    assert client.post(url("change", row.pk), fill()).status_code == 403
