"""The preview page of apps: access, the offered tools, requests of views, and the documents in its frame."""

import json
from secrets import token_hex

import pytest
from django.contrib.auth import get_user
from django.contrib.auth.models import User
from django.test import Client, RequestFactory
from django.urls import reverse
from pytest_django.fixtures import Settings

from mcp_django import conf
from mcp_django.contrib.apps.preview.host import insert_reporter
from mcp_django.contrib.apps.preview.links import build_link
from mcp_django.contrib.apps.preview.policy import MAX_ORIGINS, build_view_policy
from tests.contrib.apps.preview.conftest import ALIAS, send

PATHS = ("/preview/", "/preview/frame/?server=previewed&uri=ui://views/plain")


def frame(client: Client, uri: str) -> tuple[int, str, str]:
    """Return status, policy and text of a view's document."""
    response = client.get("/preview/frame/", {"server": ALIAS, "uri": uri})
    return response.status_code, response["Content-Security-Policy"], response.content.decode()


def statuses(client: Client) -> list[int]:
    return [*(client.get(path).status_code for path in PATHS), client.post("/preview/request/").status_code]


def test_without_debug_the_page_does_not_exist(staff: Client, preview_site: Settings) -> None:
    preview_site.DEBUG = False
    assert statuses(staff) == [404, 404, 404]


def test_with_debug_it_is_for_the_staff(staff: Client, reader: Client) -> None:
    assert statuses(staff) == [200, 200, 400]
    assert statuses(reader) == [403, 403, 403]


def test_with_a_permission_it_is_for_its_holders(staff: Client, reader: Client, preview_site: Settings) -> None:
    preview_site.DEBUG = False
    preview_site.MCP = preview_site.MCP | {"APPS_PREVIEW": {"PERMISSION": "auth.view_user"}}
    assert statuses(reader) == [200, 200, 400]
    assert statuses(staff) == [403, 403, 403]


@pytest.mark.django_db
def test_the_admin_links_to_it_for_those_who_may_open_it(preview_site: Settings) -> None:
    browser = Client()
    browser.force_login(User.objects.create_superuser("root"))

    def read_overview() -> str:
        return browser.get("/admin/mcp_django/").content.decode()

    assert '<a href="/preview/">' in read_overview()
    preview_site.DEBUG = False
    assert '<a href="/preview/">' not in read_overview()
    preview_site.MCP = preview_site.MCP | {"APPS_PREVIEW": {"PERMISSION": "auth.view_user"}}
    assert '<a href="/preview/">' in read_overview()
    preview_site.ROOT_URLCONF = "tests.urls"
    assert "Preview of apps" not in browser.get(reverse("admin:app_list", args=["mcp_django"])).content.decode()


def test_an_invalid_permission_is_reported(preview_site: Settings) -> None:
    preview_site.MCP = preview_site.MCP | {"APPS_PREVIEW": {"PERMISSION": "everyone"}}
    assert [problem.path for problem in conf.get_problems()] == ['MCP["APPS_PREVIEW"]["PERMISSION"]']


@pytest.mark.django_db
def test_anonymous_users_are_sent_to_the_login(preview_site: Settings) -> None:
    response = Client().get("/preview/?tool=show")
    assert (response.status_code, response["Location"]) == (302, "/admin/login/?next=/preview/%3Ftool%3Dshow")


def test_requests_need_a_csrf_token(staff: Client) -> None:
    staff.handler.enforce_csrf_checks = True
    assert staff.post("/preview/request/", {"server": ALIAS}).status_code == 403


def test_the_page_offers_the_tools_with_apps_that_the_user_may_call(staff: Client) -> None:
    response = staff.get("/preview/?server=previewed")
    assert [tool.name for tool in response.context["tools"]] == ["for_models", "show"]
    (shown,) = (tool for tool in response.context["tools"] if tool.name == "show")
    assert (shown.title, shown.uri, shown.example) == ("Plain", "ui://views/plain", {"name": "", "count": 0})


def test_a_link_has_sealed_arguments_for_its_user_and_tool(staff: Client, preview_site: Settings) -> None:
    request = RequestFactory().get("/")
    request.user = get_user(staff)  # type: ignore[arg-type]
    link = build_link(request, ALIAS, "show", {"name": "swordfish"}) or ""
    assert link.startswith(f"/preview/?server={ALIAS}&tool=show&arguments=")
    assert "swordfish" not in link
    assert json.loads(staff.get(link).context["data"]["arguments"]) == {"name": "swordfish"}
    other = Client()
    other.force_login(User.objects.create_superuser("other"))
    assert other.get(link).context["data"]["arguments"] == ""
    for changed in (
        link.replace("tool=show", "tool=for_models"),
        link + "x",
        f"/preview/?server={ALIAS}&arguments={{}}",
    ):
        assert staff.get(changed).context["data"]["arguments"] == ""
    assert "arguments=" not in (build_link(request, ALIAS, "show", {"name": token_hex(5000)}) or "arguments=")


def test_the_page_has_no_inline_script_and_a_strict_policy(staff: Client) -> None:
    response = staff.get("/preview/?server=previewed")
    policy = response["Content-Security-Policy"]
    assert policy.startswith("default-src 'self'; ")
    assert "unsafe" not in policy
    assert response["X-Frame-Options"] == "DENY"


def test_unknown_servers_are_not_found(staff: Client) -> None:
    assert staff.get("/preview/?server=other").status_code == 404
    assert staff.get("/preview/frame/?server=other&uri=ui://views/plain").status_code == 404


def test_calls_run_as_the_user(staff: Client) -> None:
    called = send(staff, "tools/call", {"name": "show", "arguments": {"name": "tea", "count": 1}}, visibility="model")
    assert called["result"]["content"][0]["text"] == "tea for dev"
    assert "Unknown tool" in send(staff, "tools/call", {"name": "show_secret"})["error"]["message"]


def test_visibility_is_enforced_as_by_a_host(staff: Client) -> None:
    for name, caller, is_called in (
        ("for_apps", "app", True),
        ("for_apps", "model", False),
        ("for_models", "model", True),
        ("for_models", "app", False),
    ):
        response = send(staff, "tools/call", {"name": name, "arguments": {}}, visibility=caller)
        assert ("result" in response) is is_called, (name, caller)


def test_views_send_two_methods_only(staff: Client) -> None:
    assert "result" in send(staff, "resources/read", {"uri": "ui://views/plain"})
    for method in ("tools/list", "prompts/list", "server/discover", ""):
        assert send(staff, method, {})["error"]["code"] == -32601, method


def test_malformed_requests_are_refused(staff: Client) -> None:
    valid = json.dumps({"method": "tools/call", "params": {}})
    for form in (
        {"request": "{", "visibility": "app"},
        {"request": "[]", "visibility": "app"},
        {"request": '{"a":' * 5000 + "1" + "}" * 5000, "visibility": "app"},
        {"request": "[" * 100_000, "visibility": "app"},
        {"request": '"\\ud800"', "visibility": "app"},
        {"request": json.dumps({"method": 1, "params": {}}), "visibility": "app"},
        {"request": json.dumps({"method": "tools/call", "params": []}), "visibility": "app"},
        {"request": valid, "visibility": "both"},
        {"request": valid},
    ):
        assert staff.post("/preview/request/", {"server": ALIAS, **form}).status_code == 400, form


def test_the_document_is_sandboxed_even_outside_of_the_frame(staff: Client) -> None:
    status, policy, html = frame(staff, "ui://views/plain")
    assert status == 200
    assert policy.startswith("sandbox allow-scripts; default-src 'none'; ")
    assert "connect-src 'none'" in policy
    assert "'self'" not in policy.replace("frame-ancestors 'self'", "")
    assert html.startswith("<!DOCTYPE html><html><head lang=en><script>")


def test_declared_origins_extend_the_policy_and_nothing_else_does(staff: Client) -> None:
    _, policy, _ = frame(staff, "ui://views/maps")
    assert "script-src 'unsafe-inline' https://tiles.example; " in policy
    assert "evil" not in policy


def test_a_declaration_in_the_list_of_resources_counts(staff: Client) -> None:
    assert "connect-src https://api.example:8443" in frame(staff, "ui://views/listed")[1]


def test_other_resources_are_not_shown(staff: Client) -> None:
    for uri, reason in (
        ("ui://views/text", "has the type 'text/html'"),
        ("ui://views/unknown", "not found"),
        ("file:///etc/passwd", "its URI starts with ui://"),
    ):
        status, policy, text = frame(staff, uri)
        assert (status, policy.split(";")[0]) == (404, "sandbox"), uri
        assert reason in text


def test_entries_that_are_no_origins_are_ignored() -> None:
    entries = [
        *("*", "data:", "https:", "'unsafe-eval'", "https://a.example/path", "https://a.example, https://b.example"),
        *("https://a b", "javascript://x", "https://user@a.example", "https://a.example\nscript-src", 7, None),
    ]
    assert build_view_policy({"resourceDomains": entries}) == build_view_policy({})
    for malformed in ("https://a.example", {"a": 1}, None):
        assert build_view_policy({"connectDomains": malformed}) == build_view_policy({})
    assert build_view_policy({"frameDomains": ["https://*.example.com"] * (MAX_ORIGINS + 1)}).count("*.") == MAX_ORIGINS


def test_the_reporter_is_the_first_script_of_a_document() -> None:
    for before, after in (
        ("<!doctype html><html><head>", "<script>1</script></head>"),
        ("<!doctype html><HTML lang=en>", "<body></body>"),
        ("<!doctype html>", "<p>"),
        ("", "<p>no document</p>"),
        ("<html><head data-a='1'>", "</head><body><pre>&lt;head></pre>"),
    ):
        html = insert_reporter(before + after)
        assert html.startswith(f"{before}<script>(() =>"), before
        assert html.endswith(after)
