"""The demo from its first start on, as a newcomer meets it: `manage.py demo`, a real client, Ctrl-C."""

import asyncio
import datetime
import html
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import mcp_types as types
import pytest
from mcp import Client

from tests.clients.oauth.browser import Browser
from tests.clients.oauth.connection import connected
from tests.project.conftest import ROOT, environment
from tests.support.ports import take_port
from tests.support.waiting import WAIT_SECONDS, wait_until

MODES = ["legacy", "auto"]
"""The SDK's names for the handshake era, and for the newest revision a server has."""


def found(pattern: str, text: str) -> tuple[str, ...]:
    """Return the groups of the one place where `pattern` matches."""
    match = re.search(pattern, text)
    assert match, f"no {pattern} in {text}"
    return match.groups()


class Demo:
    """A demo that is being served."""

    def __init__(self, welcome: str, pid: int) -> None:
        self.welcome = welcome
        self.pid = pid
        (self.site,) = found(r"(http://127\.0\.0\.1:\d+)/", welcome)
        self.endpoint = f"{self.site}/mcp"


@pytest.fixture(scope="module")
def fresh_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout's private directory before the first start."""
    return tmp_path_factory.mktemp("fresh") / "var"


@pytest.fixture(scope="module")
def demo(fresh_dir: Path) -> Iterator[Demo]:
    """Start it with nothing prepared, wait for its last line, and stop it."""
    with started(fresh_dir) as found:
        yield found


@pytest.fixture(scope="module")
def protected(demo: Demo, fresh_dir: Path) -> Iterator[Demo]:
    """The same with an authorization server, on the same database."""
    with started(fresh_dir, DEMO_AUTH="oauth") as found:
        yield found


@contextmanager
def started(directory: Path, *, is_killed: bool = False, **more: str) -> Iterator[Demo]:
    """A demo with its state in a directory; with `is_killed`, it is killed at the end."""
    port = take_port()
    with (
        subprocess.Popen(
            [sys.executable, "manage.py", "demo", "--port", str(port)],
            cwd=ROOT,
            env={**environment(directory), "DEMO_ORIGIN": f"http://127.0.0.1:{port}", **more},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # A shell lets background processes ignore Ctrl-C, and the test run may be one.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        ) as process,
    ):
        try:
            yield Demo(read_welcome(process), process.pid)
            process.send_signal(signal.SIGKILL if is_killed else signal.SIGINT)
            rest, _ = process.communicate(timeout=WAIT_SECONDS)
            # A machine with other work may keep a process silent for so long that the room raises an alert.
            lines = [line for line in rest.splitlines() if not line.startswith("Alert raised: silent_process ")]
            assert (process.returncode, lines) == ((-signal.SIGKILL, []) if is_killed else (0, ["Stopped."]))
        finally:
            process.kill()


def read_welcome(process: subprocess.Popen[str]) -> str:
    """Return the output of the demo until it serves; the last line explains how to stop it."""
    assert process.stdout is not None
    welcome = ""
    for line in process.stdout:
        welcome += line
        if "Ctrl-C" in line:
            return welcome
    pytest.fail(welcome)


class Traveller:
    """Answers the questions of `plan_trip`."""

    def __init__(self, trip: str, *, confirm: bool = True) -> None:
        self.trip, self.confirm = trip, confirm
        self.asked: list[str] = []

    async def answer(self, context: Any, question: Any) -> types.ElicitResult:
        """Fill in the form, then confirm or not."""
        self.asked.append(question.message)
        if "depart_on" in question.requested_schema["properties"]:
            content: Any = {"name": self.trip, "depart_on": "2030-05-01"}
        else:
            content = {"value": self.confirm}
        return types.ElicitResult(action="accept", content=content)


def call(demo: Demo, mode: str, tool: str, arguments: dict[str, Any], **client: Any) -> Any:
    """Call a tool with the official client and return the whole result."""

    async def connected() -> Any:
        async with Client(demo.endpoint, mode=mode, **client) as session:
            return await session.call_tool(tool, arguments)

    return asyncio.run(connected())


def test_the_welcome_names_the_page_the_endpoint_and_a_login_that_works(demo: Demo) -> None:
    assert demo.endpoint in demo.welcome
    user, password = found(r"user (\S+), password (\S+)", demo.welcome)
    with httpx.Client(base_url=demo.site, follow_redirects=True) as browser:
        (token,) = found(r'csrfmiddlewaretoken" value="(\w+)"', browser.get("/admin/login/").text)
        form = {"username": user, "password": password, "csrfmiddlewaretoken": token, "next": "/admin/"}
        assert "Airports of the world" in browser.post("/admin/login/", data=form).text
        assert "28,298" in browser.get("/").text
        assert browser.get("/static/admin/css/base.css").status_code == 200


def test_the_welcome_and_the_page_name_the_other_transports(demo: Demo) -> None:
    page = httpx.get(demo.site).text
    (command,) = found(r"stdio +(\S.* manage\.py mcp_stdio)", demo.welcome)
    subprocess.run([*shlex.split(command), "--help"], cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    for way in (f"{demo.endpoint.replace('http', 'ws')}/ws", f"{demo.endpoint}/sse", command):
        assert way in demo.welcome
        assert f"<code>{way}</code>" in page


def test_the_welcome_shows_how_to_connect_what_to_ask_and_a_call_without_a_client(demo: Demo, fresh_dir: Path) -> None:
    assert f"claude mcp add --transport http airports {demo.endpoint}" in demo.welcome
    assert len(demo.welcome.splitlines()) <= 24, "it fits on one screen"
    page = html.unescape(httpx.get(demo.site).text)
    (questions,) = found(r"Then ask:\n((?: {4}\S.*\n)+)", demo.welcome)
    assert [line.strip() in page for line in questions.splitlines()] == [True, True, True, True]
    (command,) = found(r"without a client:\n +(\S.*)\n", demo.welcome)
    ran = subprocess.run(
        shlex.split(command), cwd=ROOT, env=environment(fresh_dir), capture_output=True, text=True, check=True
    )
    assert "Muenster" in ran.stdout


def test_the_home_page_names_the_worker_that_rendered_it(demo: Demo) -> None:
    assert f"<code>{socket.gethostname()}, process {demo.pid}</code>" in httpx.get(demo.site).text


def test_the_demo_can_be_served_by_other_workers(tmp_path: Path) -> None:
    command = [sys.executable, "manage.py", "demo", "--prepare"]
    ran = subprocess.run(
        command, cwd=ROOT, env=environment(tmp_path / "var"), capture_output=True, text=True, check=True
    )
    assert "user demo, password" in ran.stdout
    assert "Ctrl-C" not in ran.stdout


@pytest.mark.parametrize("mode", MODES)
def test_a_client_lists_and_uses_everything(demo: Demo, mode: str) -> None:
    async def look() -> None:
        async with Client(demo.endpoint, mode=mode) as client:
            tools = {tool.name for tool in (await client.list_tools()).tools}
            assert tools >= {"search_airports", "nearest_airports", "country_statistics", "survey_country", "plan_trip"}
            converted = await client.call_tool("units__convert", {"value": 1000, "unit": "ft", "to": "m"})
            assert converted.structured_content == {"result": 304.8}
            resource: Any = await client.read_resource("airport://ZRH")
            assert '"LSZH"' in resource.contents[0].text
            listing: Any = await client.read_resource("airports://countries")
            assert "Nepal" in listing.contents[0].text
            prompt: Any = await client.get_prompt("plan_trip", {"origin": "ZRH", "destination": "AKL", "days": "9"})
            assert "9 days from Zurich Airport (ZRH) to" in prompt.messages[0].content.text
            reference = types.PromptReference(type="ref/prompt", name="plan_trip")
            offered = await client.complete(reference, {"name": "origin", "value": "zur"})
            assert "ZRH" in offered.completion.values

    asyncio.run(look())


@pytest.mark.integration
def test_a_task_survives_that_its_server_is_killed(demo: Demo, fresh_dir: Path) -> None:
    """The tool asks halfway. Another process, started after the kill, takes the answer and finishes."""
    arguments = {"continent": "Africa", "seconds": 0.5}
    with started(fresh_dir, is_killed=True) as first:
        id = ask_tasks(first, "tools/call", name="survey_continent", arguments=arguments)["taskId"]
        wait_until(lambda: ask_tasks(first, "tasks/get", taskId=id)["status"] == "input_required")

    with started(fresh_dir) as second:
        task = ask_tasks(second, "tasks/get", taskId=id)
        ((key, question),) = task["inputRequests"].items()
        assert re.match(r"\d+ airports in half of the time zones", question["params"]["message"])
        answer = {"action": "accept", "content": {"value": True}}
        ask_tasks(second, "tasks/update", taskId=id, inputResponses={key: answer})
        wait_until(lambda: ask_tasks(second, "tasks/get", taskId=id)["status"] == "completed")
        survey = ask_tasks(second, "tasks/get", taskId=id)["result"]["structuredContent"]
    assert survey["time_zones"] == 50
    assert survey["airports"] > int(question["params"]["message"].split()[0])


def ask_tasks(demo: Demo, method: str, **params: Any) -> dict[str, Any]:
    """Send a request of a client that declares tasks, and return its result."""
    capabilities = {"elicitation": {"form": {}}, "extensions": {"io.modelcontextprotocol/tasks": {}}}
    prefix = "io.modelcontextprotocol"
    meta = {f"{prefix}/protocolVersion": "2026-07-28", f"{prefix}/clientCapabilities": capabilities}
    headers = {
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": method,
        "Mcp-Name": params.get("taskId") or params["name"],
        "Accept": "application/json, text/event-stream",
    }
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    answer = httpx.post(demo.endpoint, json=message, headers=headers).json()
    assert "result" in answer, answer
    result: dict[str, Any] = answer["result"]
    return result


def test_tools_answer_with_rows_of_the_database(demo: Demo) -> None:
    zurich = call(demo, "auto", "search_airports", {"query": "zürich", "country": "Switzerland", "limit": 1})
    assert zurich.structured_content["result"][0]["iata"] == "ZRH"
    near = call(demo, "auto", "nearest_airports", {"latitude": -17.7, "longitude": 179.99, "limit": 2})
    rows = [(row["airport"]["iata"], row["distance_km"]) for row in near.structured_content["result"]]
    assert rows == [("ICI", 70.9), ("KXF", 72.0)]
    nepal = call(demo, "auto", "country_statistics", {"country": "NP"}).structured_content
    assert nepal["country"] == "Nepal"
    assert sum(nepal["airports_by_region"].values()) <= nepal["airports"]
    assert nepal["highest"]["elevation_ft"] > nepal["mean_elevation_ft"]


@pytest.mark.parametrize("mode", MODES)
def test_questions_about_rows_are_answered_by_filters_joins_groups_and_pages(demo: Demo, mode: str) -> None:
    async def ask() -> None:
        async with Client(demo.endpoint, mode=mode) as client:

            async def rows(tool: str, **arguments: Any) -> Any:
                result = await client.call_tool(tool, arguments)
                assert not result.is_error, result
                return result.structured_content

            nepal = {"country__name": "Nepal", "not": {"iata": ""}}
            highest = (await rows("airport_list", filters=nepal, order_by=["-elevation"], limit=1))["items"]
            assert [row["country"]["label"] for row in highest] == ["Nepal"]
            groups = await rows("airport_aggregate", group_by=["country__name"], order_by=["-count"], limit=3)
            assert groups["groups"][0]["country__name"] == "United States"
            page = await rows("airport_list", filters={"country": "IS"}, limit=50, fields=["icao"], with_total=True)
            seen, total = [row["pk"] for row in page["items"]], page["total"]
            while page["next_cursor"]:
                more = {"limit": 50, "fields": ["icao"], "cursor": page["next_cursor"]}
                page = await rows("airport_list", filters={"country": "IS"}, **more)
                seen += [row["pk"] for row in page["items"]]
            assert len(seen) == len(set(seen)) == total > 50
            country: Any = await client.read_resource(highest[0]["country"]["uri"])
            assert '"Nepal"' in country.contents[0].text
            reference = types.ResourceTemplateReference(type="ref/resource", uri="airports.airport://{pk}")
            offered = await client.complete(reference, {"name": "pk", "value": "kathmandu"})
            assert offered.completion.values == ["VNKT"]

    asyncio.run(ask())


@pytest.mark.parametrize("mode", MODES)
def test_an_invalid_argument_is_an_error_with_the_remedy(demo: Demo, mode: str) -> None:
    unknown = call(demo, mode, "country_statistics", {"country": "Atlantis"})
    assert unknown.is_error
    assert "give its ISO code or English name" in unknown.content[0].text
    assert call(demo, mode, "nearest_airports", {"latitude": 91, "longitude": 0}).is_error


@pytest.mark.parametrize("mode", MODES)
def test_the_slow_tool_reports_progress_up_to_the_end(demo: Demo, mode: str) -> None:
    seen: list[tuple[float, float | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total))

    async def survey() -> Any:
        async with Client(demo.endpoint, mode=mode) as client:
            return await client.call_tool("survey_country", {"country": "FJ", "limit": 12}, progress_callback=note)

    result = asyncio.run(survey()).structured_content
    assert seen == [(step, 12) for step in range(1, 13)]
    assert result["surveyed"] == 12
    assert result["most_isolated"][0]["distance_km"] >= result["mean_distance_km"]


@pytest.mark.parametrize("mode", MODES)
def test_planning_a_trip_asks_twice_and_saves_it_once(demo: Demo, mode: str) -> None:
    user = Traveller(f"South, {mode}")
    route = {"origin": "ZRH", "destination": "AKL", "stops": ["NAN"]}
    result = call(demo, mode, "plan_trip", route, elicitation_callback=user.answer)
    assert not result.is_error, result
    assert len(user.asked) == 2, result
    assert result.structured_content["trip"]["route"] == ["ZRH", "NAN", "AKL"]
    trips = call(demo, mode, "list_trips", {}).structured_content["result"]
    mine = [trip for trip in trips if trip["name"] == user.trip]
    assert [trip["depart_on"] for trip in mine] == [datetime.date(2030, 5, 1).isoformat()]


@pytest.mark.parametrize("mode", MODES)
def test_a_trip_that_is_not_confirmed_is_not_saved(demo: Demo, mode: str) -> None:
    user = Traveller(f"Never, {mode}", confirm=False)
    result = call(demo, mode, "plan_trip", {"origin": "ZRH", "destination": "AKL"}, elicitation_callback=user.answer)
    assert result.structured_content["trip"] is None
    trips = call(demo, mode, "list_trips", {}).structured_content["result"]
    assert user.trip not in {trip["name"] for trip in trips}


def test_a_subscriber_is_notified_when_another_process_saves_an_airport(demo: Demo, fresh_dir: Path) -> None:
    code = "from project.airports.models import Airport; Airport.objects.get(iata='ZRH').save()"
    save = [sys.executable, "manage.py", "shell", "--command", code]

    async def watch() -> str:
        async with (
            Client(demo.endpoint) as client,
            client.listen(resource_subscriptions=["airport://ZRH", "airport://GVA"]) as changes,
        ):
            saving = await asyncio.create_subprocess_exec(*save, cwd=ROOT, env=environment(fresh_dir))
            assert await saving.wait() == 0
            event: Any = await asyncio.wait_for(anext(aiter(changes)), WAIT_SECONDS)
            return str(event.uri)

    assert asyncio.run(watch()) == "airport://ZRH"


@pytest.mark.parametrize("mode", MODES)
def test_the_protected_demo_lets_a_client_in_whose_user_allows_it(protected: Demo, mode: str) -> None:
    user, password = found(r"user (\S+), password (\S+)", protected.welcome)
    assert f"claude mcp add --transport http airports {protected.endpoint}" in protected.welcome
    traveller = Traveller(f"Allowed, {mode}")

    async def use() -> None:
        browser = Browser(user, password=password)
        async with connected(protected.endpoint, browser, mode=mode, elicitation_callback=traveller.answer) as client:
            assert "Zurich" in await client.call("search_airports", query="ZRH", limit=1)
            assert client.scopes >= {"airports:read"}
            assert "Saved" in await client.call("plan_trip", origin="ZRH", destination="AKL")
            assert client.scopes >= {"airports:read", "airports:plan"}
            assert len(browser.pages) == 2

    asyncio.run(use())


def test_the_protected_demo_refuses_a_client_without_a_token_and_shows_where_to_disconnect(protected: Demo) -> None:
    answer = httpx.post(protected.endpoint, json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    assert answer.status_code == 401
    (page,) = found(r"be disconnected at (\S+)", protected.welcome)
    assert httpx.get(page).status_code == 302


def test_the_issuer_must_equal_the_served_url(fresh_dir: Path, demo: Demo) -> None:
    told = {"DEMO_AUTH": "oauth", "DEMO_ORIGIN": "http://127.0.0.1:1"}
    command = [sys.executable, "manage.py", "demo", "--port", "0"]
    refused = subprocess.run(
        command, cwd=ROOT, env={**environment(fresh_dir), **told}, capture_output=True, text=True, check=False
    )
    assert refused.returncode == 1
    assert "say DEMO_ORIGIN=http://127.0.0.1:0" in refused.stderr
