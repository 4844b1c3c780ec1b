"""`python -m benchmarks.steps`: costs of each step of one `tools/call` in process.

Each step is timed alone, on the objects that the steps before it made. The best of several rounds is shown, so that
other load of the machine matters little. The module uses private parts of the engine, and changes with them.
"""

from __future__ import annotations

import argparse
import asyncio
import time
import timeit
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

import uvloop

from benchmarks.inprocess import Application, Caller, Exchange
from benchmarks.serve import project
from benchmarks.wire import Dialect
from benchmarks.wire import Work as Kind

if TYPE_CHECKING:
    from mcp_django.auth.authentication.authenticator import Authenticator
    from mcp_django.server.calls.call import Call

PEER = "127.0.0.1"
ANSWER = b'{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"100007"}],"isError":false}}'
TURN = 32
"""Calls that start in one turn of the loop, as with 32 busy connections."""
TURNS = 4
"""Turns of one measurement."""
ROUNDS = 50
"""Many short rounds, so that at least the best of them is not disturbed by other processes."""

Step = tuple[str, Callable[[], Any]]


def cost(step: Callable[[], Any], number: int) -> float:
    """Return the microseconds of one call of `step`."""
    return min(timeit.repeat(step, number=number, repeat=ROUNDS, timer=time.process_time)) / number * 1e6


def drive(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits for something")


async def constant(scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]) -> None:
    """Respond with a constant.

    The application measures the costs of the loop, and of the code that takes the place of a server.
    """
    await receive()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(ANSWER))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": ANSWER})


def before_the_call(exchange: Exchange, credential: bytes) -> list[Step]:
    """Return the steps of the HTTP exchange, up to the decoded message."""
    from mcp_django.auth.requests import AuthRequest
    from mcp_django.protocol import jsonrpc
    from mcp_django.protocol.headers import Headers
    from mcp_django.server.eras import select_era
    from mcp_django.transports.http import handler as module
    from mcp_django.transports.http.handler import get_http_endpoint
    from mcp_django.transports.http.messages import HTTPRequest, check_body

    ours, headers, body = get_http_endpoint("default"), Headers(exchange.headers), exchange.body
    raw, request = jsonrpc.loads(body), HTTPRequest("POST", headers, body)
    steps: list[Step] = [
        ("headers to a dict", lambda: Headers(exchange.headers)),
        ("Host and Origin", lambda: ours._security.check(headers)),
        ("local principal", lambda: ours._authenticator.get_cached(AuthRequest(headers, PEER, "POST"))),
        ("size and media type", lambda: check_body(request, ours.limits.body)),
        ("decode", lambda: jsonrpc.decode(body)),
        ("  of which orjson", lambda: jsonrpc.loads(body)),
        ("era", lambda: select_era(module._read_version(headers), raw)),
    ]
    bearer = Headers([*exchange.headers, (b"authorization", credential)])
    authenticator = _token_authenticator()
    asyncio.run(authenticator.authenticate(AuthRequest(bearer, PEER, "POST")))
    assert authenticator.get_cached(AuthRequest(bearer, PEER, "POST")) is not None
    steps.insert(3, ("or a cached token", lambda: authenticator.get_cached(AuthRequest(bearer, PEER, "POST"))))
    return steps


def _token_authenticator() -> Authenticator:
    from mcp_django import wiring
    from mcp_django.auth.authentication.authenticator import Authenticator
    from mcp_django.auth.authentication.verifiers import PersonalTokenVerifier

    return Authenticator(
        "default", executor=wiring.get_services().executor, verifiers=[PersonalTokenVerifier()], cache_seconds=3600
    )


async def the_call(exchange: Exchange, number: int) -> list[tuple[str, float]]:
    """Measure the steps of the engine, from the decoded message to the encoded answer."""
    from mcp_django.auth.requests import AuthRequest
    from mcp_django.protocol import jsonrpc
    from mcp_django.protocol.headers import Headers
    from mcp_django.protocol.revisions import Era
    from mcp_django.server.calls.call import Connection
    from mcp_django.server.calls.message_queue import Outbox
    from mcp_django.server.calls.pending import PendingResponse
    from mcp_django.transports.http.handler import get_http_endpoint

    ours, headers, raw = get_http_endpoint("default"), Headers(exchange.headers), jsonrpc.loads(exchange.body)
    pipeline = ours._pipeline
    era = pipeline.eras[Era.STATELESS]
    principal = ours._authenticator.get_cached(AuthRequest(headers, PEER))
    assert principal is not None
    connection, outbox = Connection(principal, headers=headers), Outbox()
    message = era.parse(raw, connection)
    assert isinstance(message, jsonrpc.Request)
    call = era.create_call(message, connection, outbox)

    def handled() -> PendingResponse:
        work = pipeline.handle(era, raw, connection, outbox)
        assert isinstance(work, PendingResponse)
        return work

    def taken_off() -> None:
        work = handled()
        ours._admit_call(work, len(exchange.body))
        work.close()
        ours._limiter._calls.release(principal.key)

    steps: list[Step] = [
        ("connection and outbox", lambda: (Connection(principal, headers=headers), Outbox())),
        ("message", lambda: era.parse(raw, connection)),
        ("call, routing headers equal the body", lambda: era.create_call(message, connection, outbox)),
        *_inside(call),
        ("pipeline, without running the call", lambda: handled().close()),
        ("  and a flight made of it", taken_off),
        ("pipeline, from message to answer", lambda: drive(handled().run)),
    ]
    return [(label, cost(step, number)) for label, step in steps]


def _inside(call: Call) -> list[Step]:
    """Return the steps of an opened call."""
    from mcp_django.protocol import jsonrpc
    from mcp_django.server.dispatcher import dispatch
    from mcp_django.server.execution.invoke import call_tool
    from mcp_django.server.primitives.results import build_tool_result

    server, arguments = call.server, {"a": 100_001, "b": 7}
    tool = server.registry.tools.get("add")
    assert tool is not None
    body = build_tool_result(tool, 100_008)

    def dispatched() -> None:
        coroutine = dispatch(call)
        assert isinstance(coroutine, Coroutine)
        coroutine.close()

    def checked() -> None:
        tool.parameters.check(arguments)
        tool.parameters.convert(arguments)

    return [
        ("dispatch to a coroutine", dispatched),
        ("lease in and out", lambda: server.ports.executor.acquire_lease().close()),
        ("check and convert the arguments", checked),
        ("result", lambda: build_tool_result(tool, 100_008)),
        ("check, convert, run, result", lambda: drive(call_tool(call, tool, arguments))),
        ("dress and encode", lambda: jsonrpc.result(1, call.era.add_result_fields(call, dict(body)))),
    ]


async def whole(application: Application, dialect: Dialect, turns: int) -> float:
    """Return the microseconds of one call through an ASGI application.

    TURN calls start in each turn of the loop.
    """
    caller = Caller(application, Kind.ADD, dialect)
    await caller.open()
    loop = asyncio.get_running_loop()
    best = float("inf")
    for _ in range(ROUNDS * turns):
        spent = 0
        for _ in range(TURNS):
            exchanges = [caller.exchange() for _ in range(TURN)]
            clock = time.process_time_ns()
            tasks = [loop.create_task(caller.run(exchange)) for exchange in exchanges]
            for task in tasks:
                await task
            spent += time.process_time_ns() - clock
        best = min(best, spent / 1000 / TURNS / TURN)
    return best


async def door(application: Application, number: int) -> list[tuple[str, float]]:
    """Measure calls through the ASGI door, and through an application without work."""
    turns = max(2, number // 200)
    floor = await whole(constant, Dialect.CONSTANT, turns)
    rows = [("an application that does nothing", floor)]
    for dialect in (Dialect.STATELESS, Dialect.HANDSHAKE):
        spent = await whole(application, dialect, turns)
        rows.append((f"the door, {dialect.value}", spent))
        rows.append((f"  above nothing, {dialect.value}", spent - floor))
    return rows


def main(arguments: list[str] | None = None) -> None:
    """Print a line for each step."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.steps", description=__doc__)
    parser.add_argument("--number", type=int, default=2_000, help="calls of a step in one round")
    number = parser.parse_args(arguments).number
    with project():
        from benchmarks.credentials import personal
        from benchmarks.site.asgi import application
        from mcp_django.auth.authorization.rule_cache import NO_RULES, RULE_CACHE

        RULE_CACHE.set_rules(NO_RULES)  # reading the rules waits, and happens only once in some seconds
        caller = Caller(application, Kind.ADD, Dialect.STATELESS)
        asyncio.run(caller.open())
        exchange = caller.exchange()
        rows = [
            (label, cost(step, number))
            for label, step in before_the_call(exchange, personal()["Authorization"].encode())
        ]
        rows += asyncio.run(the_call(exchange, number))
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            rows += runner.run(door(application, number))
    for label, spent in rows:
        print(f"{label:40} {spent:7.2f} us")


if __name__ == "__main__":
    main()
