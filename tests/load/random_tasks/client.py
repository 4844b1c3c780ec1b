"""A client that calls tools of both servers, polls their tasks, and answers their questions."""

import asyncio
import itertools
import random
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import httpx

from tests.support.waiting import WAIT_SECONDS

META = "io.modelcontextprotocol/"
REVISION = "2026-07-28"
DECLARED = {"elicitation": {"form": {}}, "extensions": {META + "tasks": {}}}
POLL_SECONDS = 1.0
REQUEST_SECONDS = 6.0
"""Seconds after which the client gives up a request."""
RETRY_SECONDS = 1.0
"""Seconds until a call without an answer is made again, at first; each time twice as many."""
MAX_RETRY_SECONDS = 16.0
NUMBERS_PER_JOB_COUNT = 1000
"""Numbers that the calls of one job may use: a call without an answer is repeated under a new one."""
TERMINAL = ("completed", "failed", "cancelled")


class Job(NamedTuple):
    """A call that the client makes."""

    number: int
    at: float
    """Seconds since the start of the run."""
    tool: str
    seconds: float
    """Seconds that the tool works."""


class Call(NamedTuple):
    """A call as it was made, whether or not it was answered."""

    number: int
    tool: str
    created: float
    """Seconds of CLOCK_MONOTONIC."""


class RequestFailed(Exception):
    """A request got no answer, or an error."""


class TaskClient:
    """A caller of both servers."""

    def __init__(self, ports: Sequence[int], chance: random.Random) -> None:
        self._ports = ports
        self._chance = chance
        self._ids = itertools.count(1)
        self.calls: list[Call] = []
        self.task_ids: dict[int, str] = {}
        """Ids of the acknowledged tasks, by number."""
        self.statuses: dict[int, str] = {}
        """Last statuses that the servers gave, by number."""

    async def wait_until_served(self) -> None:
        """Wait until both servers answer."""
        for port in self._ports:
            end = time.monotonic() + WAIT_SECONDS
            while not await self._answers(port):
                assert time.monotonic() < end, f"the server at port {port} does not answer"
                await asyncio.sleep(RETRY_SECONDS)

    async def _answers(self, port: int) -> bool:
        try:
            await self._send(port, "tools/list", {}, "")
        except RequestFailed:
            return False
        return True

    async def run(self, jobs: Sequence[Job]) -> None:
        """Make all calls at their times, and follow each task to its end."""
        start = time.monotonic()
        await asyncio.gather(*(self._do(job, start) for job in jobs))

    async def _do(self, job: Job, start: float) -> None:
        await asyncio.sleep(max(0.0, start + job.at - time.monotonic()))
        for attempt in itertools.count():
            number = job.number * NUMBERS_PER_JOB_COUNT + attempt
            self.calls.append(Call(number, job.tool, time.monotonic()))
            arguments = {"number": number, "seconds": job.seconds}
            try:
                task = await self._request("tools/call", {"name": job.tool, "arguments": arguments}, job.tool)
            except RequestFailed:
                await asyncio.sleep(min(RETRY_SECONDS * 2**attempt, MAX_RETRY_SECONDS))
                continue
            self.task_ids[number] = task["taskId"]
            await self._follow(number, task["taskId"])
            return

    async def _follow(self, number: int, id: str) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            try:
                task = await self._request("tasks/get", {"taskId": id}, id)
                self.statuses[number] = task["status"]
                if task["status"] == "input_required":
                    answer = {"action": "accept", "content": {"value": True}}
                    answers = dict.fromkeys(task["inputRequests"], answer)
                    await self._request("tasks/update", {"taskId": id, "inputResponses": answers}, id)
            except RequestFailed:
                continue
            if task["status"] in TERMINAL:
                return

    async def _request(self, method: str, params: dict[str, Any], name: str) -> dict[str, Any]:
        """Send a request to one of the servers; return its result. Raises RequestFailed."""
        return await self._send(self._chance.choice(self._ports), method, params, name)

    async def _send(self, port: int, method: str, params: dict[str, Any], name: str) -> dict[str, Any]:
        meta = {META + "protocolVersion": REVISION, META + "clientCapabilities": DECLARED}
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": {**params, "_meta": meta}}
        headers = {
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": REVISION,
            "Mcp-Method": method,
            **({"Mcp-Name": name} if name else {}),
        }
        # A connection of its own: requests that a paused server holds up fill no pool.
        client = httpx.AsyncClient(timeout=REQUEST_SECONDS, verify=False, trust_env=False)
        try:
            async with client:
                response = await client.post(f"http://127.0.0.1:{port}/mcp", json=message, headers=headers)
            body = response.json()
        except (httpx.HTTPError, ValueError) as problem:
            raise RequestFailed(repr(problem)) from problem
        if "result" not in body or body["result"].get("isError"):
            raise RequestFailed(f"{method}: {body}")
        result: dict[str, Any] = body["result"]
        return result
