"""Bots of four kinds that call, fail, ask and wait, so that the control room of the demo is alive: `--busy`.

The first kind reads in the stateless era and makes mistakes. The second runs long surveys in a session. The third plans
trips, and answers their questions slowly. The fourth starts tasks. No bot saves anything.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any

from mcp_types import Implementation

from mcp_django.client import CallError, Client, ClientError, StreamableHTTP

logger = logging.getLogger("project.bots")
PAUSE_SECONDS = 1.5
"""Mean pause of a bot between two calls."""
THINKING_SECONDS = (2.0, 12.0)
"""Shortest and longest time until a question is answered."""
RETRY_SECONDS = 5.0
READERS = 3
PLANNERS = 2
PLACES = ("zurich", "oslo", "nairobi", "auckland", "lima", "nice", "tokyo")
COUNTRIES = ("CH", "NZ", "FJ", "NP", "IS", "Atlantis")
CODES = ("ZRH", "OSL", "NBO", "AKL", "LIM", "NCE")
SURVEYED = ("FJ", "IS", "NP", "CH")
CONTINENTS = ("Africa", "Asia", "Europe")
TASK_SECONDS = 20


async def run_bots(endpoint: str, token: str | None) -> None:
    """Run all bots against an endpoint until the task is cancelled. `token` authenticates them."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    target = StreamableHTTP(endpoint, headers=headers)
    bots: list[Awaitable[None]] = [_repeat(target, "reader", "stateless", read) for _ in range(READERS)]
    bots.append(_repeat(target, "surveyor", "handshake", survey))
    bots += [_repeat(target, "planner", "handshake", plan) for _ in range(PLANNERS)]
    bots.append(_repeat(target, "explorer", "stateless", explore))
    await asyncio.gather(*bots)


async def _repeat(target: StreamableHTTP, name: str, era: str, act: Callable[[Client], Awaitable[Any]]) -> None:
    """Let a bot act again and again, on a new connection after an error."""
    info = Implementation(name=f"{name}-bot", version="1.0")
    while True:
        try:
            async with Client(target, protocol_version=era, client_info=info, elicitation=think) as client:
                while True:
                    try:
                        await act(client)
                    except CallError:
                        pass  # a mistake that the bot made, or a call that the control room cancelled
                    await asyncio.sleep(random.expovariate(1 / PAUSE_SECONDS))
        except ClientError as problem:
            logger.warning("A bot starts again: %s", problem)
        await asyncio.sleep(RETRY_SECONDS)


async def think(question: Any) -> dict[str, Any]:
    """Answer a question after some time. The confirmation is refused, so no trip is saved."""
    await asyncio.sleep(random.uniform(*THINKING_SECONDS))
    if "depart_on" in question.requested_schema["properties"]:
        return {"name": "A bot's trip", "depart_on": "2030-05-01"}
    return {"value": False}


async def read(client: Client) -> None:
    """Call one of the short tools, now and then with a mistake."""
    chance = random.random()
    if chance < 0.4:
        await client.call_tool("search_airports", {"query": random.choice(PLACES)})
    elif chance < 0.7:
        point = {"latitude": random.uniform(-60, 70), "longitude": random.uniform(-180, 180)}
        await client.call_tool("nearest_airports", point)
    elif chance < 0.95:
        await client.call_tool("country_statistics", {"country": random.choice(COUNTRIES)})
    else:
        await client.call_tool("search_airports", {"query": "?"})


async def survey(client: Client) -> None:
    """Run a survey that takes some seconds and reports its progress."""
    await client.call_tool("survey_country", {"country": random.choice(SURVEYED)}, on_progress=_ignore_progress)


async def plan(client: Client) -> None:
    """Plan a trip whose questions wait for `think`."""
    origin, destination = random.sample(CODES, 2)
    await client.call_tool("plan_trip", {"origin": origin, "destination": destination})


async def explore(client: Client) -> None:
    """Survey a continent in a task, and wait for its end."""
    await client.call_tool("survey_continent", {"continent": random.choice(CONTINENTS), "seconds": TASK_SECONDS})


async def _ignore_progress(*args: Any) -> None:
    """Accept progress, because the server reports it only to clients that ask."""
