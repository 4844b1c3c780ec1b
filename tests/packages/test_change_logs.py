"""Packages that log changes, or limit rows, find the caller: by AROUND on every way in, by MIDDLEWARE in the view."""

import json
import sys
import types
from typing import Any

import pytest
import reversion.models
from auditlog.models import LogEntry
from django.contrib.auth.models import User
from django.core.asgi import get_asgi_application
from django.test import Client as DjangoClient

from mcp_django.asgi import mount
from mcp_django.models import PersonalAccessToken
from tests.interaction.clients import HANDSHAKE, STATELESS, Client
from tests.interaction.transports import Transport
from tests.packages.rooms import CHANGES, SENT_EVENTS, Guest, Room
from tests.recipes.pages import block_with

ROOMS = "tests.packages.rooms"
MIDDLEWARE = [
    "simple_history.middleware.HistoryRequestMiddleware",
    "auditlog.middleware.AuditlogMiddleware",
    f"{ROOMS}.Revisions",
    "crum.CurrentRequestUserMiddleware",
    f"{ROOMS}.EventMiddleware",
]
AROUND = [f"change_log.{name}" for name in ("history", "audit_log", "revision", "current_user")]
BESIDE_MIDDLEWARE = [path for path in AROUND if path != "change_log.revision"]
"""Revisions are saved by the outermost of their blocks, which does not see those of a copied context."""
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _rooms(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Serve rooms as a model and as a view, with the code of the recipe as a module."""
    recipe = types.ModuleType("change_log")
    exec(block_with("change-log", "def audit_log"), vars(recipe))
    monkeypatch.setitem(sys.modules, "change_log", recipe)
    CHANGES.clear()
    SENT_EVENTS.clear()
    settings.ALLOWED_HOSTS, settings.ROOT_URLCONF = ["127.0.0.1", "testserver"], "tests.interaction.urls"
    settings.MIDDLEWARE = []
    serve(settings)


def serve(settings: Any, *around: str) -> None:
    servers = {"default": {}, "rooms": {"STORED": False, "AROUND": list(around)}}
    settings.MCP = {"AUTH": "token", "SERVERS": servers}


@pytest.fixture
def token() -> str:
    user = User.objects.create_superuser("ada")
    return PersonalAccessToken.issue(user=user, name="tests", expires=None)[1]


WRITES = (("room_create", {"values": {"name": "Attic"}}), ("api_create", {"name": "Cellar"}))
"""A write by the tool of a model, and one by the tool of a view."""


def get_users() -> dict[str, list[Any]]:
    """Return the users whom each package has recorded, for all changes."""
    names = dict(User.objects.values_list("pk", "username"))
    entries = LogEntry.objects.get_for_model(Room).order_by("pk")
    return {
        "history": [row.history_user and row.history_user.username for row in Room.history.order_by("pk")],
        "auditlog": [entry.actor and entry.actor.username for entry in entries],
        "reversion": [names.get(row.user_id) for row in reversion.models.Revision.objects.order_by("pk")],
        "crum": [room.changed_by for room in Room.objects.order_by("pk")],
        "events": list(CHANGES),
    }


EVERYONE = {name: ["ada", "ada"] for name in ("history", "auditlog", "reversion", "crum", "events")}
NEWEST = (HANDSHAKE[-1], STATELESS)


@pytest.fixture(params=["mount", "view"])
def transport(request: pytest.FixtureRequest) -> Transport:
    make = mount_all if request.param == "mount" else get_asgi_application
    return Transport(make, "" if request.param == "mount" else "/view")


def mount_all() -> Any:
    return mount(get_asgi_application())


def call_tools(transport: Transport, revision: str, token: str, calls: Any, **headers: str) -> list[Any]:
    """Return the results of calls on pool threads, as on a server."""
    results = []

    async def run() -> None:
        client = await Client(transport, revision, server="rooms", token=token, headers=headers).open()
        for name, arguments in calls:
            result = (await client.tool(name, arguments)).result
            assert not result.get("isError"), result
            results.append(result["structuredContent"])

    transport.run(run())
    return results


@pytest.mark.parametrize("revision", NEWEST)
def test_context_managers_name_the_user_on_every_transport(
    settings: Any, transport: Transport, revision: str, token: str
) -> None:
    serve(settings, *AROUND, f"{ROOMS}.track_events")
    call_tools(transport, revision, token, WRITES)
    assert get_users() == EVERYONE
    assert [event.split(" in ")[0] for event in SENT_EVENTS] == ["Attic by ada", "Cellar by ada"]


@pytest.mark.parametrize("revision", NEWEST)
def test_middleware_names_the_user_in_the_view(settings: Any, revision: str, token: str) -> None:
    settings.MIDDLEWARE = MIDDLEWARE
    call_tools(Transport(get_asgi_application, "/view"), revision, token, WRITES)
    # The MIDDLEWARE of auditlog reads the user before the token is checked. That of crum sets a value of its thread.
    assert get_users() == {**EVERYONE, "auditlog": [None, None], "crum": ["", ""]}


def test_middleware_and_context_managers_name_the_user_once(settings: Any, token: str) -> None:
    settings.MIDDLEWARE = MIDDLEWARE
    serve(settings, *BESIDE_MIDDLEWARE, f"{ROOMS}.track_events")
    call_tools(Transport(get_asgi_application, "/view"), STATELESS, token, WRITES)
    assert get_users() == EVERYONE


@pytest.mark.parametrize("around", [[], BESIDE_MIDDLEWARE])
def test_the_user_is_named_under_wsgi(settings: Any, token: str, around: list[str]) -> None:
    settings.MIDDLEWARE = MIDDLEWARE
    serve(settings, *around)
    client = Client(Transport(lambda: None, "/view"), STATELESS, server="rooms", token=token)
    for name, arguments in WRITES:
        message = client.request_message("tools/call", {"name": name, "arguments": arguments})
        headers = client.headers(message)
        content_type = headers.pop("content-type")
        response = DjangoClient().post(client.path(), json.dumps(message), content_type=content_type, headers=headers)
        assert not response.json()["result"].get("isError"), response.json()
    assert get_users() == {**EVERYONE, "auditlog": EVERYONE["auditlog"] if around else [None, None]}


def test_change_logs_are_empty_without_middleware_and_managers(token: str, transport: Transport) -> None:
    call_tools(transport, STATELESS, token, WRITES)
    empty = {"history": [None, None], "auditlog": [None, None], "reversion": [], "crum": ["", ""], "events": []}
    assert get_users() == empty


def test_a_dry_run_is_neither_recorded_nor_published(settings: Any, transport: Transport, token: str) -> None:
    room = Room.objects.create(name="Attic")
    Room.history.all().delete()
    LogEntry.objects.all().delete()
    serve(settings, *AROUND, f"{ROOMS}.track_events")
    arguments = {"pk": room.pk, "values": {"name": "Loft"}, "dry_run": True}
    [result] = call_tools(transport, STATELESS, token, [("room_update", arguments)])
    assert (result["dry_run"], result["item"]["name"]) == (True, "Loft")
    assert SENT_EVENTS == []
    assert get_users() == {"history": [], "auditlog": [], "reversion": [], "crum": [""], "events": ["ada"]}


@pytest.mark.parametrize("by", ["AROUND", "MIDDLEWARE"])
def test_rows_are_limited_to_a_scope(settings: Any, by: str, token: str) -> None:
    for hotel in ("north", "south"):
        Guest.objects.create(name=f"guest of {hotel}", hotel=hotel)
    if by == "AROUND":
        transport = Transport(mount_all)
        serve(settings, f"{ROOMS}.in_hotel")
    else:
        transport = Transport(get_asgi_application, "/view")
        settings.MIDDLEWARE = [f"{ROOMS}.HotelMiddleware"]
    for hotel in ("north", "south", "north"):
        headers = {"x-hotel": hotel}
        [result] = call_tools(transport, STATELESS, token, [("guest_list", {})], **headers)
        assert [item["name"] for item in result["items"]] == [f"guest of {hotel}"]
