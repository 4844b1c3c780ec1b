"""Deep JSON at the URLs of the package, and in the playground: it is refused, and breaks no view.

`tests.interaction.test_malformed_messages` has the same for messages on each transport.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.forms.formsets import ManagementForm
from django.test import Client
from django.urls import URLResolver, get_resolver, include, path

import mcp_django
from tests.support.admin_pages import iter_admin_paths
from tests.support.package_rows import PACKAGE_LABELS, create_package_rows

DEEP = {
    "5,000 objects": '{"a":' * 5_000 + "1" + "}" * 5_000,
    "100,000 arrays": "[" * 100_000 + "]" * 100_000,
}
PARAMETERS = ("arguments", "history", "request", "claims")
"""Parameters of the views that hold JSON, in forms and queries."""
FORMS: tuple[dict[str, str], ...] = ({"act": "send_json"}, {"visibility": "model"})
"""Other fields of the forms."""


ACCEPT = {"Accept": "application/json, text/event-stream"}


def list_routes(patterns: list[Any], prefix: str = "") -> Iterator[str]:
    """Yield the routes of a URLconf."""
    for pattern in patterns:
        route = prefix + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from list_routes(pattern.url_patterns, route)
        else:
            yield route


def build_path(route: str) -> str:
    """Return a path that matches a route."""
    route = re.sub(r"<(?:(\w+):)?\w+>", lambda found: "1", route)
    route = re.sub(r"\(\?P<\w+>[^)]*\)|\.\+", "1", route)
    route = re.sub(r"\(\?:([^|)]*)[^)]*\)", r"\1", route)
    return "/" + re.sub(r"[\^$\\]|/\?", "", route)


@pytest.fixture
def urls(settings: Any) -> list[str]:
    """The paths of a project that includes every URLconf of the package."""
    conf = ModuleType("urls_of_this_test")
    vars(conf)["urlpatterns"] = [
        path("", include("mcp_django.urls")),
        path("", include("mcp_django.contrib.oauth.urls")),
        path("", include("mcp_django.contrib.control_room.urls")),
        path("preview/", include("mcp_django.contrib.apps.preview.urls")),
        path("services/", include("mcp_django.contrib.client_pages.urls")),
        path("admin/", admin.site.urls),
    ]
    settings.ROOT_URLCONF = conf
    settings.DEBUG = True
    server = {"TRANSPORTS": ["http", "sse", "websocket"], "HEALTHZ": True}
    settings.MCP = {"AUTH": "none", "SERVERS": {"default": server}}
    found = {build_path(route) for route in list_routes(get_resolver().url_patterns)}
    return sorted(url for url in found if "/playground/" in url or not url.startswith("/admin/"))


@pytest.fixture
def browser(db: None) -> Client:
    User.objects.create_superuser("root")
    return Client(raise_request_exception=False, SERVER_NAME="localhost")


def test_json_is_parsed_where_deep_nesting_is_an_ordinary_error() -> None:
    package = Path(mcp_django.__file__).parent
    found = set()
    for module in package.rglob("*.py"):
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and ast.unparse(node) in ("json.loads", "json.load"):
                found.add(module.relative_to(package).as_posix())
    # Each of them catches RecursionError. The others use `jsonrpc.loads`, which has a limit, or `loads_exactly`.
    assert found == {"auth/external/strict_json.py", "contrib/memory/validation.py", "protocol/jsonrpc.py"}


def build_form_data(page: Any, text: str) -> dict[str, str]:
    """Return the data of a form of the admin, with the text in each field."""
    forms = [page.context["adminform"].form]
    for formset in page.context["inline_admin_formsets"]:
        forms += [formset.formset.management_form, *formset.formset.forms]
    data = {}
    for form in forms:
        is_management = isinstance(form, ManagementForm)
        data |= {form.add_prefix(name): str(form[name].value()) if is_management else text for name in form.fields}
    return data


def test_no_form_of_the_admin_fails(browser: Client, settings: Any, subtests: pytest.Subtests) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = None
    create_package_rows("example")
    browser.force_login(User.objects.get(username="root"))
    tried = 0
    for url in iter_admin_paths(PACKAGE_LABELS):
        if not url.endswith(("/add/", "/change/")):
            continue
        page: Any = browser.get(url)
        if page.status_code == 200 and page.context is not None and "adminform" in page.context:
            with subtests.test(url=url):
                tried += 1
                assert browser.post(url, build_form_data(page, DEEP["100,000 arrays"])).status_code in (200, 302, 403)
    assert tried > 15


@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP)
def test_no_view_fails(browser: Client, urls: list[str], text: str) -> None:
    statuses: dict[tuple[str, str], int] = {}
    for url in urls:
        browser.force_login(User.objects.get())  # One of the pages logs the user out.
        statuses[url, "body"] = browser.post(url, text, "application/json", headers=ACCEPT).status_code
        statuses[url, "query"] = browser.get(url, dict.fromkeys(PARAMETERS, text[:9_000])).status_code
        for form in FORMS:
            data = dict.fromkeys(PARAMETERS, text) | form
            statuses[url, f"form {form}"] = browser.post(url, data).status_code
    assert not {key: status for key, status in statuses.items() if status >= 500}
    refused = ("/o/register/", "body"), ("/preview/request/", f"form {FORMS[-1]}")
    assert {key: statuses[key] for key in refused} == dict.fromkeys(refused, 400)
