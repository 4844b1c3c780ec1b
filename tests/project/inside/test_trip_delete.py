"""`trip_delete` of the demo asks its user: by elicitation, in an app, or not at all."""

from contextlib import nullcontext
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User

from mcp_django import MCPError
from mcp_django.testing import TestClient, accept, decline
from project.airports.models import Airport, Trip

pytestmark = pytest.mark.django_db
APPS = {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}}
QUESTION = "mcp-django/question"


@pytest.fixture(params=["2026-07-28", "2025-11-25"])
def revision(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def owner() -> User:
    return User.objects.create_superuser("ada")


@pytest.fixture
def trip(owner: User) -> Trip:
    zurich, geneva = (Airport.objects.with_code(code).get() for code in ("ZRH", "GVA"))
    return Trip.objects.create(owner=owner, name="Alps", origin=zurich, destination=geneva)


def exists(trip: Trip) -> bool:
    return Trip.objects.filter(pk=trip.pk).exists()


def run(function: Any, revision: str, user: User, *arguments: Any, **options: Any) -> Any:
    """Run a coroutine function with a client. The ORM of the test shares the connection of the tools."""

    async def main() -> Any:
        async with TestClient(revision=revision, user=user, **options) as client:
            return await function(client, *arguments)

    return async_to_sync(main)()


async def delete(client: TestClient, pk: Any) -> dict[str, Any]:
    return await client.call_tool("trip_delete", {"pk": pk})


def test_a_client_with_elicitation_is_asked(owner: User, trip: Trip, revision: str) -> None:
    questions: list[str] = []

    def refuse(params: dict[str, Any]) -> Any:
        questions.append(params["message"])
        return decline()

    assert run(delete, revision, owner, trip.pk, elicit=refuse)["isError"]
    assert (exists(trip), len(questions), "Alps" in questions[0]) == (True, 1, True)
    assert not run(delete, revision, owner, trip.pk, elicit=lambda params: accept())["isError"]
    assert not exists(trip)


def test_a_client_with_apps_asks_in_the_app(owner: User, trip: Trip, revision: str) -> None:
    async def delete_in_app(client: TestClient) -> None:
        tools = {tool["name"]: tool for tool in await client.list_tools()}
        [page] = await client.read_resource(tools["trip_delete"]["_meta"]["ui"]["resourceUri"])
        assert "mcpApp.askUser" in page["text"]
        waiting = await delete(client, trip.pk)
        question = waiting["_meta"][QUESTION]
        assert "Alps" in question["message"]
        assert await Trip.objects.aexists()
        answered = await client.call_tool(question["tool"], {"token": question["token"], "action": "accept"})
        assert not answered["isError"]

    run(delete_in_app, revision, owner, capabilities=APPS)
    assert not exists(trip)


def test_a_client_without_elicitation_and_apps_is_refused(owner: User, trip: Trip, revision: str) -> None:
    # In the stateless era the refusal is an error of the protocol, which names the missing capability.
    with pytest.raises(MCPError) if revision == "2026-07-28" else nullcontext():
        assert run(delete, revision, owner, trip.pk, capabilities={})["isError"]
    assert exists(trip)


def test_used_foreign_altered_and_invented_tokens_delete_nothing(owner: User, trip: Trip, revision: str) -> None:
    other = User.objects.create_superuser("eve")

    async def ask(client: TestClient) -> str:
        return str((await delete(client, trip.pk))["_meta"][QUESTION]["token"])

    async def answer(client: TestClient, token: str) -> bool:
        result = await client.call_tool("answer_question", {"token": token, "action": "accept"})
        return bool(result["isError"])

    token = run(ask, revision, owner, capabilities=APPS)
    assert run(answer, revision, other, token, capabilities=APPS)
    middle = len(token) // 2
    altered = f"{token[:middle]}{'A' if token[middle] != 'A' else 'B'}{token[middle + 1 :]}"
    for wrong in (altered, "", "true"):
        assert run(answer, revision, owner, wrong, capabilities=APPS)
    assert exists(trip)
    assert not run(answer, revision, owner, token, capabilities=APPS)
    assert not exists(trip)
    again = Trip.objects.create(pk=trip.pk, owner=owner, name="Alps", origin=trip.origin, destination=trip.destination)
    assert run(answer, revision, owner, token, capabilities=APPS)
    assert exists(again)
