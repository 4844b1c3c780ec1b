"""System checks of apps."""

from collections.abc import Callable
from typing import Any

import pytest

from mcp_django import Server
from mcp_django.contrib.apps import CSP, app
from mcp_django.contrib.apps.checks import MAX_PAGE_BYTES, check_apps
from mcp_django.schema import DeclarationError

MakeServer = Callable[..., Server]


def collect_ids(server: Server) -> list[str]:
    return [message.id.removeprefix("mcp_django.") for message in check_apps(server)]


def add_app(server: Server, template: str = "page.html", **options: Any) -> None:
    app("cart", template=template, server=server, **options)
    server.tool(ui="cart", name="show_cart")(lambda: "cart")


def test_an_app_of_a_tool_has_no_problems(make_app_server: MakeServer) -> None:
    server = make_app_server()
    add_app(server)
    assert collect_ids(server) == []
    [extension] = server.extensions.extensions
    assert list(extension.check()) == []


def test_a_missing_template_and_one_that_fails_are_errors(
    make_app_server: MakeServer, templates: dict[str, str]
) -> None:
    templates["broken.html"] = "<!doctype html>{% lost %}"
    templates["part.html"] = "<p>no document</p>"
    for template in ("lost.html", "broken.html", "part.html"):
        server = make_app_server()
        add_app(server, template)
        assert collect_ids(server) == ["E063"]


def test_a_tool_of_an_unknown_app_is_an_error(make_app_server: MakeServer) -> None:
    server = make_app_server()
    server.tool(ui="lost", name="show")(lambda: "cart")
    assert collect_ids(server) == ["E064"]


def test_a_tool_that_hides_the_answers_of_apps_is_an_error(make_app_server: MakeServer) -> None:
    server = make_app_server()
    server.tool(name="answer_question")(lambda: "taken")
    assert [(found.id, "hides the tool" in found.msg) for found in check_apps(server)] == [("mcp_django.E065", True)]


def test_a_tool_for_apps_needs_a_permission(make_app_server: MakeServer) -> None:
    server = make_app_server()
    server.tool(visibility=["app"], name="open")(lambda: "open")
    server.tool(visibility=["app"], name="closed", permission="shop.view_product")(lambda: "closed")
    server.tool(visibility=["app", "model"], name="both")(lambda: "both")
    [message] = check_apps(server)
    assert (message.id, "the tool open is" in message.msg) == ("mcp_django.W062", True)


def test_an_app_without_tools_is_reported(make_app_server: MakeServer) -> None:
    server = make_app_server()
    app("cart", template="page.html", server=server)
    assert collect_ids(server) == ["W065"]


def test_a_large_page_is_reported(make_app_server: MakeServer, templates: dict[str, str]) -> None:
    templates["large.html"] = "<!doctype html>" + "x" * MAX_PAGE_BYTES
    server = make_app_server()
    add_app(server, "large.html")
    assert collect_ids(server) == ["W064"]


@pytest.mark.parametrize(
    ("element", "csp", "is_blocked"),
    [
        ('<script src="https://cdn.example.com/a.js"></script>', CSP(), True),
        (
            '<script src="https://cdn.example.com/a.js"></script>',
            CSP(resource_domains=["https://cdn.example.com"]),
            False,
        ),
        ('<script src="https://a.example.com/a.js"></script>', CSP(resource_domains=["https://*.example.com"]), False),
        ('<script src="https://example.com/a.js"></script>', CSP(resource_domains=["https://*.example.com"]), True),
        ('<img src="http://cdn.example.com/a.png">', CSP(resource_domains=["https://cdn.example.com"]), True),
        ('<img src="//cdn.example.com/a.png">', CSP(resource_domains=["https://cdn.example.com"]), False),
        ('<img src="/static/a.png">', CSP(), True),
        ('<img src="data:image/png;base64,AA==">', CSP(), False),
        ('<link rel="stylesheet" href="a.css">', CSP(), True),
        ('<a href="https://example.com">Link</a><a href="#top">Top</a>', CSP(), False),
        ('<iframe src="https://maps.example.com"></iframe>', CSP(resource_domains=["https://maps.example.com"]), True),
        ('<iframe src="https://maps.example.com"></iframe>', CSP(frame_domains=["https://maps.example.com"]), False),
    ],
)
def test_sources_that_clients_block_are_reported(
    make_app_server: MakeServer, templates: dict[str, str], element: str, csp: CSP, is_blocked: bool
) -> None:
    templates["loading.html"] = f"<!doctype html>{element}"
    server = make_app_server()
    add_app(server, "loading.html", csp=csp)
    assert collect_ids(server) == (["W063"] if is_blocked else [])


def test_the_static_origin_is_permitted_if_there_is_one(
    make_app_server: MakeServer, templates: dict[str, str], settings: Any
) -> None:
    templates["static.html"] = '<!doctype html>{% load mcp_apps %}{% app_js "a.js" %}'
    settings.STATIC_URL = "https://static.example.com/files/"
    server = make_app_server()
    add_app(server, "static.html", csp="static")
    assert collect_ids(server) == []
    settings.STATIC_URL = "/static/"
    with pytest.raises(DeclarationError, match="requires a STATIC_URL with an origin"):
        add_app(make_app_server(), "static.html", csp="static")
