"""Apps in the playground: their data and documents, and their requests as runs of the operator."""

import html
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from mcp_django import Context, Server, wiring
from mcp_django.contrib.apps import has_apps
from mcp_django.contrib.playground.runs.streams import MEDIA_TYPE
from mcp_django.observability import Call
from mcp_django.protocol.revisions import HANDSHAKE_VERSIONS, LATEST
from mcp_django.server.primitives.registry import get_registry
from tests.contrib.playground.runs.test_streams import read_fields
from tests.contrib.playground.test_playground import ALIAS, PAGE, READS, build_url, change, log_in, received

__all__ = ["change", "received"]
pytestmark = pytest.mark.django_db(transaction=True)
FRAME = "admin:mcp_playground_playground_app"
VIEW = "ui://views/cart"
SHOWS_VIEW = {"ui": {"resourceUri": VIEW}}
JSONObject = dict[str, Any]


@pytest.fixture
def server(change: Callable[..., None]) -> Iterator[Server]:
    server, registry = wiring.get_server(ALIAS), get_registry(ALIAS)

    @server.resource(VIEW, mime_type="text/html;profile=mcp-app")
    async def read_view(ctx: Context) -> str:
        return f"<!doctype html><title>{ctx.principal.user.get_username()}</title>"

    @server.tool(annotations=READS, meta=SHOWS_VIEW)
    async def show_cart(ctx: Context, number: int = 1) -> JSONObject:
        return {"number": number, "has_apps": has_apps(ctx)}

    @server.tool(annotations=READS, permission="auth.add_user", meta=SHOWS_VIEW)
    async def show_secret() -> str:
        return "swordfish"

    @server.tool(annotations=READS, meta={"ui": {"visibility": ["app"]}})
    async def load(ctx: Context, page: int) -> str:
        return f"page {page} {has_apps(ctx)}"

    @server.tool(annotations=READS, meta={"ui": {"visibility": ["model"]}})
    async def think() -> str:
        return "thought"

    @server.tool
    async def save(ctx: Context, name: str) -> str:
        sure = await ctx.elicit(f"Save {name}?", bool)
        return f"saved {name}: {sure.data}"

    @server.tool(annotations=READS)
    async def sample(ctx: Context) -> str:
        return str(await ctx.sample("Hm?"))

    yield server
    for tool in list(registry.tools):
        registry.remove("tool", tool.name)
    for resource in list(registry.resources):
        registry.remove("resource", resource.key)


@pytest.fixture
def operator(server: Server) -> Client:
    """The browser of an operator who acts as ada."""
    User.objects.create_user("ada")
    return log_in("use_playground", "use_playground_as", "add_user")


def send(browser: Client, name: str, kind: str = "tools", **fields: str) -> list[JSONObject]:
    """Send a request of an app, and return the events of its run."""
    url = build_url(name, kind, **{"as": "ada"})
    response = browser.post(url, {"act": "app", "app": "show_cart", **fields}, headers={"Accept": MEDIA_TYPE})
    assert response["Content-Type"] == MEDIA_TYPE
    return [json.loads(line) for line in b"".join(response).split(b"\n") if line.strip()]


def read_app_data(page: str) -> JSONObject | None:
    found = re.search(r'<script id="playground-app-data" type="application/json">(.*?)</script>', page)
    return None if found is None else json.loads(found[1])


@pytest.mark.parametrize("version", [LATEST.version, HANDSHAKE_VERSIONS[-1]])
def test_a_result_has_the_data_of_its_app(operator: Client, version: str) -> None:
    url = build_url("show_cart", **{"as": "ada"})
    page = operator.post(url, {"act": "send", "argument-number": "7", "revision": version}).content.decode()
    data = read_app_data(page)
    assert data is not None
    assert data["tool"]["name"] == "show_cart"
    assert (data["input"], data["revision"]) == ({"number": 7}, version)
    assert data["result"]["structuredContent"] == {"number": 7, "has_apps": True}
    assert f"{reverse(PAGE)}{data['source']}" == reverse(FRAME, query={**data["query"], "name": "show_cart"})
    assert read_app_data(operator.get(url).content.decode()) is None
    assert read_app_data(operator.post(url, {"act": "send", "argument-number": "x"}).content.decode())
    # Policies add up, so an app cannot take its frame elsewhere on a site that has none.
    assert """<meta http-equiv="Content-Security-Policy" content="frame-src 'self'">""" in page
    assert "mcp_apps/host.js" not in operator.get(build_url("load")).content.decode()


def test_the_document_of_an_app_is_what_the_acting_user_reads(operator: Client, settings: Any) -> None:
    query = {"server": ALIAS, "as": "ada"}
    document = operator.get(reverse(FRAME, query={**query, "name": "show_cart"}))
    assert "<title>ada</title>" in document.content.decode()
    assert document["Content-Security-Policy"].startswith("sandbox allow-scripts; default-src 'none'; ")
    assert document["X-Frame-Options"] == "SAMEORIGIN"
    entry = LogEntry.objects.get()
    assert (entry.object_repr, entry.change_message) == (
        f"resources/read {VIEW} ({ALIAS})",
        "Sent in the playground as ada.",
    )

    for name in ("show_secret", "load", "unknown", ""):
        assert operator.get(reverse(FRAME, query={**query, "name": name})).status_code == 404, name
    frame = reverse(FRAME, query={"server": ALIAS, "name": "show_secret"})
    assert operator.get(frame).status_code == 200
    User.objects.create_superuser("root")
    assert operator.get(reverse(FRAME, query={**query, "name": "show_cart", "as": "root"})).status_code == 403
    assert log_in("view_controlroom", name="other").get(frame).status_code == 403
    assert Client().get(frame).status_code == 302
    settings.MCP = settings.MCP | {"PLAYGROUND": {"ENABLED": False}}
    assert operator.get(frame).status_code == 404


def test_a_call_of_an_app_is_a_run_with_both_names(operator: Client, received: list[Call]) -> None:
    events = send(operator, "load", arguments='{"page": 2}')
    assert [event["kind"] for event in events] == ["message", "message", "end"]
    assert events[-1]["html"] == ""
    assert events[-1]["response"]["result"]["content"] == [{"type": "text", "text": "page 2 True"}]
    (call,) = received
    assert (call.principal.user.get_username(), call.principal.actor.get_username()) == ("ada", "staff")
    entry = LogEntry.objects.get()
    assert (entry.user.username, entry.object_repr) == ("staff", f"tools/call load ({ALIAS})")
    assert entry.change_message == "Sent by the app of show_cart in the playground as ada."
    read = send(operator, VIEW, "resources")[-1]["response"]["result"]["contents"][0]
    assert "<title>ada</title>" in read["text"]


def test_requests_that_a_host_refuses_are_not_sent(operator: Client, received: list[Call]) -> None:
    def find_error(*args: str, **fields: str) -> str:
        (event,) = send(operator, *args, **fields)
        return str(event["response"]["error"]["message"])

    assert "not visible to the app" in find_error("think", arguments="{}")
    assert "This is not valid JSON" in find_error("load", arguments="{")
    assert "An app cannot send 'tools/call' for apps" in find_error("show_cart", "apps", arguments="{}")
    form = {"act": "app", "app": "show_cart", "arguments": "{}"}
    for name, app in (("show_secret", "show_cart"), ("load", "show_secret"), ("load", "load"), ("load", "")):
        answer = operator.post(build_url(name, **{"as": "ada"}), {**form, "app": app}, headers={"Accept": MEDIA_TYPE})
        assert answer.get("Content-Type") != MEDIA_TYPE, (name, app)
    assert received == []


def test_a_writing_tool_waits_for_the_confirmation_of_the_operator(operator: Client, received: list[Call]) -> None:
    (event,) = send(operator, "save", arguments='{"name": "<b>"}')
    assert "The app wants to run save as ada. This may write." in event["html"]
    assert "<b>" not in event["html"]
    assert "response" not in event
    assert received == []
    confirmed = {key: value for key, value in read_fields(event["html"]).items() if key != "app"}
    question = send(operator, "save", **confirmed)[-1]
    assert "Save &lt;b&gt;?" in question["html"]
    assert "response" not in question
    answers = {"question-1-decision": "accept", "question-1-argument-value": "true"}
    end = send(operator, "save", **read_fields(question["html"]), **answers, act="answer")[-1]
    assert end["response"]["result"]["content"] == [{"type": "text", "text": "saved <b>: True"}]
    assert [call.principal.actor.get_username() for call in received] == ["staff", "staff"]


def test_a_refusal_is_an_error_for_the_app(operator: Client) -> None:
    question = send(operator, "sample", arguments="{}")[-1]
    assert "If you refuse, nothing is sent, and the run ends." in html.unescape(question["html"])
    end = send(operator, "sample", **read_fields(question["html"]), **{"question-1-decision": "decline"}, act="answer")[
        -1
    ]
    assert end["response"]["error"]["message"] == "The user refused the request"
