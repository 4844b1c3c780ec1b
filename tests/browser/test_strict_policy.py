"""The admin and the pages around a visited link, under a strict Content-Security-Policy, in German and in Kolkata."""

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import django.contrib.admin
import pytest
from django.conf import settings as django_settings
from django.contrib.auth.models import User
from django.test import Client, RequestFactory, override_settings
from django.urls import resolve
from django.utils import timezone
from playwright.sync_api import Browser, ConsoleMessage, Page
from pytest_django.fixtures import Settings
from pytest_django.live_server_helper import LiveServer

import mcp_django
from mcp_django.contrib.control_room.models import UsageRollup
from mcp_django.models import (
    EndReason,
    PersonalAccessToken,
    ScopeGrant,
    ServiceAccount,
    Session,
    StoredPrompt,
    ToolPolicy,
)
from mcp_django.models.service_account import save_account
from mcp_django.runtime.events.event_log import EventDraft, EventLog
from mcp_django.runtime.sessions import activity
from mcp_django.runtime.url_elicitation import DONE_VIEW, OPEN_VIEW, PageVisit
from mcp_django.wiring import get_services
from tests.browser.accessibility import OF_DJANGO, check
from tests.support.waiting import WAIT_SECONDS

PARTS_OF_DJANGO = {
    "personalaccesstoken/add/": {"label"},
    "toolpolicy/add/": {"aria-prohibited-attr"},
    "serviceaccount/add/": {"aria-prohibited-attr"},
    "serviceaccount/change/": {"aria-prohibited-attr"},
}
"""Rules that break at Django's own parts of one form, by its path without a key.

They are its inputs of dates, and its boxes to choose from.
"""
GERMAN = {"LANGUAGE_CODE": "de", "TIME_ZONE": "Asia/Kolkata"}


@pytest.fixture(scope="module")
def strict_server() -> Iterator[LiveServer]:
    """A server with the policy. Django reads the middleware once, when the server starts."""
    middleware = ["tests.browser.policy.StrictPolicyMiddleware", *django_settings.MIDDLEWARE]
    with override_settings(MIDDLEWARE=middleware):
        server = LiveServer("localhost")
    yield server
    server.stop()


@pytest.fixture
def site_url(
    transactional_db: None, site: Settings, strict_server: LiveServer, tmp_path: Path, settings: Settings
) -> str:
    """Where the site is served, with the style sheets of the package and of the admin."""
    for name, source in (
        ("mcp_django", Path(mcp_django.__file__).with_name("static") / "mcp_django"),
        ("admin", Path(django.contrib.admin.__file__).with_name("static") / "admin"),
    ):
        (tmp_path / name).symlink_to(source, target_is_directory=True)
    settings.STATIC_ROOT = str(tmp_path)
    settings.ALLOWED_HOSTS = ["*"]
    for name, value in GERMAN.items():
        setattr(settings, name, value)
    server = {"URL": "https://api.example/mcp", "AUTH": {"TYPE": "oauth"}}
    settings.MCP = settings.MCP | {"CLIENTS": {"github": server}, "ORIGIN": None}
    return str(strict_server.url)


@pytest.fixture
def boss(site_url: str) -> User:
    """An administrator, with rows on every page."""
    boss = User.objects.create_superuser("boss")
    now = timezone.now()
    for number in range(3):
        info = {"name": "a-client-with-a-long-name", "version": "2025.11.25"}
        row = Session(owner="o", user=boss, server="default", revision="2025-11-25", client_info=info)
        row.expires, row.last_seen = now + timedelta(days=1), now
        row.generate_key()
        row.save()
        if number == 2:
            Session.objects.filter(pk=row.pk).end(EndReason.CLIENT)
    token = PersonalAccessToken.issue(user=boss, name="CI job", scopes=["airports:read"], expires=None)[0]
    caller = ["default", f"django|{boss.pk}|token:{token.pk}", f"token:{token.pk}", str(boss.pk), "token"]
    report = {"by": "one", "callers": [caller]}
    EventLog().append([EventDraft(activity.CALLERS_TOPIC, activity.CALLERS_KIND, report)])
    ToolPolicy.objects.create(tool="delete_*", rate="1/m", groups=["editors"])
    ScopeGrant.objects.create(scope="airports:write", users=[str(boss.pk)])
    for name, owner in (("ci-of-the-shop", boss), ("nightly-report", None)):
        save_account(ServiceAccount(owner=owner, description="GitHub Actions"), User(username=name))
    robot = User.objects.get(username="ci-of-the-shop")
    PersonalAccessToken.issue(user=robot, name="deploy key", scopes=["airports:read"], expires=now + timedelta(days=3))
    usage = {"server": "default", "method": "tools/call", "name": "nearest", "principal": "p", "milliseconds_sum": 1}
    hour = now.replace(minute=0, second=0, microsecond=0)
    UsageRollup.objects.create(start=hour, user_key=str(robot.pk), count=7, failed=2, **usage)
    StoredPrompt.objects.create(name="hello")
    return boss


@pytest.fixture
def page(chromium: Browser, site_url: str, boss: User) -> Iterator[Page]:
    """A page of the administrator. An error or warning of the browser fails the test."""
    client = Client()
    client.force_login(boss)
    key = client.cookies[django_settings.SESSION_COOKIE_NAME].value
    context = chromium.new_context(base_url=site_url)
    context.add_cookies([{"name": django_settings.SESSION_COOKIE_NAME, "value": key, "url": site_url}])
    page, complaints = context.new_page(), []
    page.set_default_timeout(WAIT_SECONDS * 1000)
    page.on(
        "console",
        lambda message: (
            complaints.append(f"{page.url} {message.location}: {message.text[:60]}") if is_unexpected(message) else None
        ),
    )
    page.on("pageerror", lambda problem: complaints.append(str(problem)))
    yield page
    context.close()
    assert complaints == []


def is_unexpected(message: ConsoleMessage) -> bool:
    """Return True unless the message is about a status that a test expects, or about axe, which has no URL."""
    return bool(message.location["url"]) and not message.text.startswith("Failed to load resource")


def admin_paths() -> list[str]:
    models = (Session, PersonalAccessToken, StoredPrompt, ServiceAccount)
    session, token, prompt, account = (model.objects.earliest("pk") for model in models)
    return [
        "",
        "session/",
        f"session/{session.pk}/change/",
        f"session/{session.pk}/end/",
        "session/callers/",
        "personalaccesstoken/",
        "personalaccesstoken/add/",
        f"personalaccesstoken/{token.pk}/change/",
        f"personalaccesstoken/{token.pk}/revoke/",
        "serviceaccount/",
        "serviceaccount/add/",
        f"serviceaccount/{account.pk}/change/",
        f"serviceaccount/{account.pk}/disable/",
        "toolpolicy/",
        "toolpolicy/add/",
        "scopegrant/",
        "storedresource/",
        "storedprompt/",
        f"storedprompt/{prompt.pk}/change/",
        f"storedprompt/{prompt.pk}/preview/",
        "storedprompt/add/",
        "clienthealth/",
        "clienttoken/",
        "externalidentity/",
    ]


def test_pages_of_the_admin_are_accessible_under_a_strict_policy(page: Page, subtests: pytest.Subtests) -> None:
    for path in admin_paths():
        with subtests.test(path):
            response = page.goto(f"/admin/mcp_django/{path}")
            assert response is not None
            assert response.status == 200
            check(page, ignored=OF_DJANGO | PARTS_OF_DJANGO.get(re.sub(r"\d+/", "", path), set()))


def test_the_state_of_a_session_is_visible_before_and_after_its_end(page: Page) -> None:
    page.set_viewport_size({"width": 1280, "height": 844})
    page.goto("/admin/mcp_django/session/")
    box = page.locator("th.column-state").bounding_box()
    results = page.locator("#changelist .results").bounding_box()
    assert box is not None
    assert results is not None
    assert box["x"] + box["width"] <= results["x"] + results["width"]
    assert page.locator("td.field-protocol, th.field-protocol").first.evaluate("it => it.getClientRects().length") == 1


def test_a_new_token_is_visible_for_copying(page: Page) -> None:
    page.goto("/admin/mcp_django/personalaccesstoken/add/")
    page.locator("#id_name").fill("CI")
    page.locator("input[name=_save]").click()
    box = page.locator("textarea.mcp-secret")
    assert box.input_value().startswith("mcp_pat_")
    assert box.evaluate("it => it === document.activeElement")
    check(page, ignored=OF_DJANGO)


def test_the_result_of_a_check_is_visible(page: Page, settings: Settings) -> None:
    page.set_viewport_size({"width": 390, "height": 700})
    github = settings.MCP["CLIENTS"]["github"]
    settings.MCP = settings.MCP | {"CLIENTS": {"alpha": github, "beta": github, "github": github}}
    page.goto("/admin/mcp_django/clienthealth/")
    page.locator("#github form button").click()
    result = page.locator("#github").get_by_role("status")
    assert result.is_visible()
    box = result.bounding_box()
    assert box is not None
    assert 0 <= box["y"] < 700
    page.locator("#github a.button").click()
    page.wait_for_url("**/mcp/clients/github/connect/")


def test_pages_of_a_visited_link_are_accessible_under_a_strict_policy(
    page: Page, boss: User, subtests: pytest.Subtests
) -> None:
    pages = get_services().elicitation_pages
    other = User.objects.create_user("other")
    request = RequestFactory().get("/mcp")
    request.resolver_match = resolve("/mcp")

    def path(user: User, purpose: str) -> str:
        visit = PageVisit(f"{purpose}{user.pk}", str(user.pk), "/", timezone.now().timestamp() + 600)
        return pages.build_path(request, purpose, visit, ttl=600)

    done = path(boss, DONE_VIEW)
    for name, url, status in (
        ("other account", path(other, OPEN_VIEW), 403),
        ("expired", f"{path(boss, OPEN_VIEW)}x", 404),
        ("done", done, 200),
        ("used before", done, 410),
    ):
        with subtests.test(name):
            response = page.goto(url)
            assert response is not None
            assert response.status == status
            check(page, ignored=set())
    page.goto(path(other, OPEN_VIEW))
    page.locator("main button").click()
    page.wait_for_url("**/accounts/login/**")
