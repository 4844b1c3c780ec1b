"""Texts of the admin, the pages and the forms are marked for translation: pages in a pseudo-locale show no English.

Data of the tests is Greek, so that every word of ASCII letters is a text of the package without a mark.
"""

import itertools
import re
import sys
import time
from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group, User
from django.http import HttpResponse
from django.test import Client, RequestFactory
from django.urls import resolve, reverse
from django.utils import timezone, translation
from pytest_django.fixtures import Settings

from mcp_django import Server, owner_of, wiring
from mcp_django.admin.base import RowActionAdmin
from mcp_django.client.pool.health import HEALTH_REGISTRY
from mcp_django.contrib.control_room.models import Alert, OutcomeChoices
from mcp_django.contrib.control_room.pages.running_calls import WAIT_LABELS
from mcp_django.contrib.memory.conversations import ConversationStore
from mcp_django.contrib.memory.facts import FactStore
from mcp_django.contrib.oauth.flows import consents
from mcp_django.models import (
    ClientHealth,
    ClientToken,
    ExternalIdentity,
    PersonalAccessToken,
    ScopeGrant,
    ServiceAccount,
    Session,
    StoredArgument,
    StoredMessage,
    StoredPrompt,
    StoredResource,
    ToolPolicy,
)
from mcp_django.models.service_account import save_account
from mcp_django.runtime.url_elicitation import DONE_VIEW, OPEN_VIEW, PageVisit
from mcp_django.server.primitives.registry import get_registry
from mcp_django.wiring import get_services
from scripts.messages import extract_messages
from tests.contrib.control_room.pages.test_running_calls import make_long_call, make_process
from tests.contrib.control_room.test_rows import make_record, make_rollup, make_usage
from tests.contrib.oauth.oauth_client import MCP, WEB, Source, authorization_path, make_client
from tests.support.admin_pages import iter_admin_paths
from tests.support.pseudo_locale import LANGUAGE, accent, find_unmarked_texts, write_catalogue

pytestmark = pytest.mark.django_db
APPS = ("mcp_django", "mcp_oauth", "mcp_memory")
SERVER = "https://mcp.example/mcp"
ALLOWED = {
    # Values of the protocol, units, and kinds of transports
    *("user", "assistant", "http", "stdio", "default", "ms"),
    # The host of the site, its time zone, and names of tools of other tests
    *("testserver", "UTC", "add", "recommend"),
    # Texts of other packages without a mark: images of Django's admin, names of the toolkit's models
    *("Search", "True", "False", "Application", "Applications", "Public"),
}
"""Words of pages that are not texts of the package."""
NAMES_OF_THE_PLAYGROUND = {
    # Values of JSON and of the protocol
    *("true", "false", "result", "structuredContent", "URI"),
    *("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"),
    # Programs and clients
    *("Python", "curl", "claude", "mcp", "Claude", "Code", "Codex", "Cursor", "Gemini", "CLI", "VS", "Windsurf"),
}
"""Words of the playground that are not translated."""


@pytest.fixture(scope="module")
def catalogues(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the catalogue of the pseudo-locale."""
    folder = tmp_path_factory.mktemp("locale")
    write_catalogue(folder, extract_messages())
    return folder


@pytest.fixture(autouse=True)
def _pseudo_locale(settings: Settings, catalogues: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A site in the pseudo-locale, with all optional pages."""
    settings.LOCALE_PATHS = [str(catalogues)]
    settings.ROOT_URLCONF = "tests.contrib.oauth.urls"
    settings.LOGIN_URL = "login"
    settings.MCP = {
        "AUTH": ["oauth", "token"],
        "ORIGIN": "https://testserver",
        "SCOPES": {"notes:read": "Ανάγνωση", "notes:write": "Γραφή"},
        "SERVERS": {"default": {"TITLE": "Κύριος"}, "staff-1": {"TITLE": "Δεύτερος"}},
        "CLIENTS": {
            "oauth-1": {"URL": SERVER, "AUTH": {"TYPE": "oauth"}},
            "oauth-2": {"URL": SERVER, "AUTH": {"TYPE": "oauth", "PER": "project"}},
            "weather-1": {"COMMAND": [sys.executable, "-c", "1"]},
        },
    }
    # The sidebar lists models of other packages.
    monkeypatch.setattr(admin.site, "enable_nav_sidebar", False)
    HEALTH_REGISTRY.reset_after_fork()
    with translation.override(LANGUAGE):
        yield
    HEALTH_REGISTRY.reset_after_fork()


@pytest.fixture
def ada() -> User:
    return User.objects.create_superuser("άδα")


@pytest.fixture
def browser(ada: User) -> Client:
    client = Client()
    client.force_login(ada)
    return client


@pytest.fixture
def rows(ada: User) -> None:
    """One row or more of each model that the admin shows."""
    now = timezone.now()
    later = now + timedelta(days=3)
    info = {"n1": "πελάτης"}
    for fields in ({}, {"terminated_at": now, "end_reason": "admin"}, {"expires": now - timedelta(days=1)}):
        session = Session(
            owner="o1",
            user=ada,
            server="default",
            revision="2025-06-18",
            **{"expires": later, "client_info": info} | fields,
        )
        session.generate_key()
        session.key_prefix = "k1"
        session.save()

    Group.objects.create(name="ομάδα")
    ToolPolicy.objects.create(
        tool="z1*", groups=["ομάδα", "άλλη"], scopes=["notes:read", "x:y"], rate="1/m", note="νέο"
    )
    ToolPolicy.objects.create(tool="b", server="staff-1", disabled=True)
    ScopeGrant.objects.create(scope="notes:read", groups=["άλλη"], clients=["c1"])
    ScopeGrant.objects.create(scope="x:y", tokens=False)
    ExternalIdentity.objects.create(issuer="https://id.example", subject="s1", user=ada)
    for fields in ({}, {"revoked_at": now}, {"expires_at": now - timedelta(days=1)}):
        token = PersonalAccessToken(user=ada, name="κλειδί", scopes=["notes:read"], expires_at=later)
        vars(token).update(fields)
        token.generate_token()
        token.save()
    for number, fields in enumerate(({"grant": "x", "wanted": "a:b"}, {"grant": "x", "user": None}, {"issuer": "i1"})):
        values = {"user": ada, "server": SERVER, "alias": f"oauth-{number}", "key": str(number), "expires_at": later}
        ClientToken.objects.create(**values | fields)
    ClientHealth.objects.create(
        alias="weather-1",
        process="vm:1",
        updated=now,
        connections=1,
        since=now,
        reached=now,
        calls=3,
        latency=0.1,
        error="OSError1",
        error_text="λάθος",
        error_at=now,
    )
    for number, owner in enumerate((ada, None)):
        save_account(ServiceAccount(owner=owner, description="ρομπότ"), User(username=f"a{number}"))
    robot = User.objects.get(username="a0")
    PersonalAccessToken.issue(user=robot, name="κλειδί", scopes=["notes:read"], expires=later)
    _create_stored_rows(ada)
    _create_oauth_rows(ada)
    _create_memory_rows(ada)


def _create_stored_rows(user: User) -> None:
    prompt = StoredPrompt.objects.create(name="ask-1", title="Τίτλος", permission="a.b", tags=["ετικέτα"])
    StoredArgument.objects.create(prompt=prompt, name="a1", choices=["ένα"], position=1)
    StoredMessage.objects.create(prompt=prompt, text="Γεια $a1", position=1)
    resource = StoredResource.objects.create(uri="docs://a1", name="Έγγραφο", text="κείμενο", size=7)
    for row in (prompt, resource):
        row.record(user)
        row.title = "Άλλος"
        row.save()
        row.record(None)
    StoredResource.objects.create(uri="docs://a2", name="Αρχείο", data=b"\0", size=1, enabled=False)


def _create_oauth_rows(user: User) -> None:
    for source in Source:
        application = make_client(name=f"Εφαρμογή {source.value}1", source=source, created_ip="127.0.0.1")
        consents.record_consent(user, application, [MCP], ["notes:read"], WEB)


def _create_memory_rows(user: User) -> None:
    messages = [{"role": "user", "content": "γεια"}]
    ConversationStore(owner_of(user), user).save(messages, id="c1", title="Συζήτηση", tags=["ετικέτα"])
    FactStore(owner_of(user), user).save("γεγονός", id="f1", days=1)


@pytest.fixture
def calls(ada: User) -> None:
    """Calls of each outcome, running calls of each cause, and processes, for the control room."""
    now = timezone.now()
    hour = now.replace(minute=0, second=0, microsecond=0)
    for outcome in OutcomeChoices:
        make_rollup(now.replace(second=0, microsecond=0), outcome=outcome, name="greet-1")
        make_record(now, outcome=outcome, name="greet-1", user_key=str(ada.pk))
    make_usage(hour, client="c1", user_key=str(ada.pk))
    make_process("web-1")
    make_process("web-2", age=60, dropped=1)
    for number, cause in enumerate((*WAIT_LABELS, "remote:x-1")):
        total = 4 if number % 2 else None
        make_long_call(f"k{number}", "web-1", waits_for=cause, progress=number, progress_total=total, name="greet-1")
    for number in (0, 1):
        cancelled = now - timedelta(minutes=number)
        make_long_call(f"cancelled{number}", "web-1", name="greet-1", cancelled=cancelled)
    Alert._default_manager.create(rule="bugs", subject="default: b-1", is_active=True, value=3, checked=now, since=now)
    Alert._default_manager.create(rule="slow", subject="default: s-1", checked=now, since=now, cleared=now)


def _get_text(response: HttpResponse, status: int = 200) -> str:
    """Return the HTML of a page, without the names of permissions, which Django keeps in English in its table."""
    assert response.status_code == status, response.content.decode()[:2000]
    html = response.content.decode(response.charset)
    return re.sub(r'<select name="user_permissions".*?</select>', "", html, flags=re.DOTALL)


def _check_pages(pages: dict[str, str], names: Iterable[str] = ()) -> None:
    allowed = ALLOWED | set(names)
    found = [f"{name}: {text}" for name, html in pages.items() for text in find_unmarked_texts(html, allowed)]
    assert not found, "texts that are not marked for translation:\n" + "\n".join(found)


def _get_pages(browser: Client, paths: Iterable[str]) -> dict[str, str]:
    """Return those of the pages that are found, and may be opened."""
    pages = {path: browser.get(path) for path in paths}
    return {path: _get_text(page) for path, page in pages.items() if page.status_code not in (302, 403, 404, 405)}


def _list_admins() -> list[tuple[str, Any]]:
    return [
        (f"{model._meta.app_label}_{model._meta.model_name}", model_admin)
        for model, model_admin in admin.site._registry.items()
        if model._meta.app_label in APPS
    ]


def test_the_search_finds_a_text_without_a_mark() -> None:
    html = f'<p title="{accent("Token")}">{accent("%(count)d rows")} Rows of /o/tokens/</p><code>code</code>'
    assert find_unmarked_texts(html, {"of"}) == [f"{accent('%(count)d rows')} Rows of /o/tokens/"]
    assert find_unmarked_texts(html, {"of", "Rows"}) == []
    assert find_unmarked_texts('<input type="submit" value="Go"><a aria-label="Close">x</a>', ()) == ["Close", "Go"]


def test_lists_of_the_admin(browser: Client, rows: None) -> None:
    pages = {}
    for name, _model_admin in _list_admins():
        pages[name] = _get_text(browser.get(reverse(f"admin:{name}_changelist")))
    for app in APPS:
        pages[app] = _get_text(browser.get(reverse("admin:app_list", args=[app])))
    _check_pages(pages)


def test_forms_of_the_admin(browser: Client, rows: None) -> None:
    pages = {}
    for name, model_admin in _list_admins():
        if name in ("mcp_django_access", "mcp_django_clienthealth"):  # their rows have no pages
            continue
        if model_admin.has_add_permission(_build_request(browser)):
            url = reverse(f"admin:{name}_add")
            pages[f"add {name}"] = _get_text(browser.get(url))
            pages[f"invalid {name}"] = _get_text(browser.post(url, _build_management_form()))
        for row in model_admin.model._default_manager.all():
            for page in ("change", "delete", "history"):
                pages[f"{page} {name} {row.pk}"] = _get_text(
                    browser.get(reverse(f"admin:{name}_{page}", args=[row.pk]))
                )
    _check_pages(pages)


def _build_request(browser: Client) -> Any:
    request = RequestFactory().get("/")
    request.user = User.objects.get(username="άδα")
    return request


def _build_management_form() -> dict[str, str]:
    names = ("TOTAL_FORMS", "INITIAL_FORMS")
    return {f"{prefix}-{name}": "0" for prefix in ("arguments", "messages") for name in names} | {
        # Values that are invalid for the fields with these names
        "name": "ό χι",
        "uri": "ό",
        "mime_type": "ό",
        "permission": "ό",
        "tags": "ό" * 70,
        "scopes": "ό\\",
        "priority": "5",
        "tool": "ό χι",
        "rate": "ό",
        "subject": "\x01",
        "expires_at_0": "2001-01-01",
        "expires_at_1": "00:00",
        "clients": "ό" * 300,
    }


def test_actions_of_the_admin(browser: Client, rows: None) -> None:
    pages = {}
    for name, model_admin in _list_admins():
        if name in ("mcp_django_access", "mcp_django_clienthealth"):  # their rows have no pages
            continue
        url = reverse(f"admin:{name}_changelist")
        for action in model_admin.get_actions(_build_request(browser)):
            keys = [str(row.pk) for row in model_admin.model._default_manager.all()]
            data = {"action": action, "_selected_action": keys}
            pages[f"{action} {name}"] = _get_text(browser.post(url, data, follow=True))
    _check_pages(pages)


def test_actions_of_one_row(browser: Client, rows: None) -> None:
    pages = {}
    admins = [(name, one) for name, one in _list_admins() if isinstance(one, RowActionAdmin)]
    assert len(admins) >= 2
    for name, model_admin in admins:
        for row, action in itertools.product(model_admin.model._default_manager.all(), model_admin.get_row_actions()):
            url = reverse(f"admin:{name}_{action.name}", args=[row.pk])
            pages[f"question {name} {action.name} {row.pk}"] = _get_text(browser.get(url))
            pages[f"report {name} {action.name} {row.pk}"] = _get_text(browser.post(url, follow=True))
    _check_pages(pages)


def test_saved_rows_of_the_admin(browser: Client, rows: None, ada: User) -> None:
    policy = {"tool": "z-1", "groups": ["ομάδα"], "rate": "1/m"}
    later = timezone.now() + timedelta(days=3)
    token = {"user": ada.pk, "name": "νέο", "expires_at_0": f"{later:%Y-%m-%d}", "expires_at_1": "12:00"}
    resource = {"uri": "docs://b1", "name": "νέο", "permission": "no.such", "text": "κ", "enabled": "on"}
    sent: dict[str, dict[str, Any]] = {"toolpolicy": policy, "personalaccesstoken": token, "storedresource": resource}
    pages = {}
    for name, data in sent.items():
        page = browser.post(reverse(f"admin:mcp_django_{name}_add"), data, follow=True)
        pages[name] = _get_text(page)
    _check_pages(pages)


def test_previews_and_versions(browser: Client, rows: None) -> None:
    pages = {}
    for model in (StoredPrompt, StoredResource):
        name = f"admin:mcp_django_{model._meta.model_name}"
        for row in model.objects.all():
            for page in ("preview", "versions"):
                pages[f"{page} {row}"] = _get_text(browser.get(reverse(f"{name}_{page}", args=[row.pk])))
            for version in row.versions.all():
                url = reverse(f"{name}_version", args=[row.pk, version.number])
                pages[f"version {row} {version.number}"] = _get_text(browser.get(url))
                pages[f"restored {row} {version.number}"] = _get_text(browser.post(url, follow=True))
    _check_pages(pages)


def test_used_servers(browser: Client, rows: None) -> None:
    pages = {"list": _get_text(browser.get(reverse("admin:mcp_django_clienthealth_changelist")))}
    for alias in ("oauth-1", "weather-1"):
        checked = browser.post(reverse("admin:mcp_django_clienthealth_check", args=[alias]), follow=True)
        pages[f"check {alias}"] = _get_text(checked)
    _check_pages(pages)


def test_pages_of_the_authorization_server(browser: Client, rows: None) -> None:
    pages = {}
    # A client with a document would be fetched.
    for source in (Source.MANUAL, Source.REGISTERED):
        path = authorization_path(make_client(name="Εφαρμογή", source=source), scope="notes:read notes:write")
        pages[f"consent {source}"] = _get_text(browser.get(path))
        pages[f"nothing selected {source}"] = _get_text(browser.post(path, {"allow": "1"}))
    local = authorization_path(
        make_client("http://127.0.0.1/cb", name="Εφαρμογή"), scope="notes:write", redirect_uri="http://127.0.0.1:9/cb"
    )
    pages["local client"] = _get_text(browser.get(local))
    pages["error"] = _get_text(browser.get("/o/authorize/?client_id=1"), 400)
    pages["connections"] = _get_text(browser.get("/o/connections/"))
    pages["unknown connection"] = _get_text(browser.post("/o/connections/", {"client": "0"}))
    pages["tokens"] = _get_text(browser.get("/o/tokens/"))
    pages["invalid token"] = _get_text(browser.post("/o/tokens/", {"action": "create"}))
    pages["new token"] = _get_text(browser.post("/o/tokens/", {"action": "create", "name": "νέο", "days": "30"}))
    pages["unknown token"] = _get_text(browser.post("/o/tokens/", {"action": "revoke", "token": "0"}))
    pages["signed out"] = _get_text(browser.post("/o/switch/"))
    _check_pages(pages)


def test_pages_that_connect_services(browser: Client, rows: None) -> None:
    pages = {
        name: _get_text(browser.get(f"/mcp/clients/{path}", secure=True))
        for name, path in [("services", ""), ("connect", "oauth-1/connect/"), ("connect for all", "oauth-2/connect/")]
    }
    pages["callback"] = _get_text(browser.get("/mcp/clients/oauth-1/callback/?code=1&state=2", secure=True), 400)
    pages["repeated"] = _get_text(browser.get("/mcp/clients/oauth-1/callback/?code=1&code=2", secure=True), 400)
    for alias in ("oauth-1", "oauth-0", "none"):
        pages[f"disconnect {alias}"] = _get_text(browser.post("/mcp/clients/", {"alias": alias}, secure=True))
    _check_pages(pages)


def test_pages_around_an_elicited_page(browser: Client, ada: User) -> None:
    def build_path(view: str, user: Any, seconds: float = 60) -> str:
        visit = PageVisit("id", str(user), "/", time.time() + seconds)
        request: Any = RequestFactory().get("/mcp")
        request.resolver_match = resolve("/mcp")
        return get_services().elicitation_pages.build_path(request, view, visit, ttl=seconds)

    done = build_path(DONE_VIEW, ada.pk)
    _check_pages(
        {
            "done": _get_text(browser.get(done)),
            "again": _get_text(browser.get(done), 410),
            "other user": _get_text(browser.get(build_path(OPEN_VIEW, 0)), 403),
            "expired": _get_text(browser.get("/mcp/page/x"), 404),
            "signed out": _get_text(browser.post(build_path(OPEN_VIEW, 0))),
        }
    )


def test_pages_of_the_control_room(browser: Client, calls: None) -> None:
    pages = _get_pages(browser, iter_admin_paths(["mcp_control_room", "mcp_tasks", "mcp_skills"]))
    assert len(pages) >= 20
    room = "admin:mcp_control_room_controlroom"
    target = {"server": "default", "method": "tools/call", "name": "greet-1", "span": "week"}
    pages |= _get_pages(
        browser,
        [
            reverse(f"{room}_target", query=target),
            reverse(f"{room}_target", query=target | {"name": "none-1"}),
            *(
                reverse("admin:mcp_django_access_changelist", query={"server": "default", "users": user})
                for user in ("άδα", "x-1")
            ),
        ],
    )
    for name in ("cancelled", "ended"):
        page = browser.post(reverse(f"{room}_cancel"), {"key": "k0"}, follow=True)
        pages[f"cancel {name}"] = _get_text(page)
    _check_pages(pages)


@pytest.fixture
def played() -> Iterator[Server]:
    """A server for the playground: a tool that writes, a prompt and a resource."""
    server, registry = wiring.get_server("staff-1"), get_registry("staff-1")

    @server.tool(description="Στέλνει")
    async def send_1(
        text_1: str,
        size_1: int | None = None,
        tags_1: list[str] | None = None,
        is_loud_1: bool = False,
        place_1: dict[str, int] | None = None,
    ) -> str:
        return text_1

    @server.prompt(description="Χαιρετά")
    async def greet_1(name_1: str) -> str:
        return name_1

    @server.resource("docs://a3", description="Έγγραφο")
    async def read_1() -> str:
        return "κείμενο"

    yield server
    registry.remove("tool", "send_1")
    registry.remove("prompt", "greet_1")
    registry.remove("resource", "docs://a3")


def test_pages_of_the_playground(browser: Client, played: Server, settings: Settings) -> None:
    settings.MCP = settings.MCP | {"PLAYGROUND": {"ENABLED": True}}
    typed = {"argument-text_1": "κείμενο", "argument-name_1": "άδα", "argument-uri": "docs://a3"}
    forms = [typed | {"act": act, "confirmed": "on"} for act in ("show", "send")]
    forms += [{"act": "send_json", "confirmed": "on", "arguments": arguments} for arguments in ("{}", "x", "[]")]
    forms += [typed | {"act": "send"}, typed | {"act": "send", "argument-place_1": "x"}]
    pages = {}
    for kind, name in (("tools", "send_1"), ("prompts", "greet_1"), ("resources", "docs://a3"), ("tools", "")):
        query = {"server": "staff-1", "kind": kind, "name": name}
        path = reverse("admin:mcp_playground_playground_changelist", query=query)
        pages[name] = _get_text(browser.get(path))
        for form in forms:
            pages[f"{name} {form}"] = _get_text(browser.post(path, form))
    _check_pages(pages, NAMES_OF_THE_PLAYGROUND)
