"""Messages to a server in the same process: one request, all rounds of a request, all pages of a list."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InternalError
from mcp_django.server.calls.background import run_background_jobs
from mcp_django.server.calls.call import Connection, EraStrategy
from mcp_django.server.calls.message_queue import Outbox
from mcp_django.server.calls.pending import Acknowledgement
from mcp_django.server.context.conversation import INPUT_REQUIRED
from mcp_django.server.pipeline import Pipeline
from mcp_django.server.ports import Overloaded

JSONObject = dict[str, Any]
MessageCallback = Callable[[JSONObject], Awaitable[None]]
RequestFunction = Callable[[str, JSONObject], Awaitable[JSONObject]]
READ_TIMEOUT_SECONDS = 60.0


async def run_request(
    pipeline: Pipeline, era: EraStrategy, message: Mapping[str, Any], connection: Connection, outbox: Outbox
) -> JSONObject:
    """Return the result of a request after its background jobs are done.

    Messages before the answer are put into `outbox`. Raises MCPError, Overloaded.
    """
    outcome = pipeline.handle(era, message, connection, outbox)
    if isinstance(outcome, Acknowledgement):
        raise InternalError("A request was handled as a notification")
    if isinstance(outcome, bytes):
        body = outcome
    else:
        body = await outcome.run
        if any(call.record.jobs is not None for call in outcome.calls):
            await run_background_jobs(outcome.calls)
    result: JSONObject = jsonrpc.loads(body)["result"]
    return result


async def send_request(
    pipeline: Pipeline,
    era: EraStrategy,
    message: Mapping[str, Any],
    connection: Connection,
    on_message: MessageCallback,
) -> JSONObject:
    """Return the result of a request of a client.

    `on_message` receives each message before the answer. Raises MCPError, Overloaded, and exceptions of `on_message`.
    """
    outbox = Outbox()
    outbox.loop = asyncio.get_running_loop()
    reader = asyncio.ensure_future(_forward_messages(outbox, on_message))
    try:
        return await run_request(pipeline, era, _copy_message(message), connection, outbox)
    finally:
        outbox.finish()
        with contextlib.suppress(Overloaded):
            await reader


async def send_message(
    pipeline: Pipeline, era: EraStrategy, message: Mapping[str, Any], connection: Connection
) -> None:
    """Send a notification or a response, and wait until the server has processed it."""
    outcome = pipeline.handle(era, _copy_message(message), connection, Outbox())
    if isinstance(outcome, Acknowledgement) and outcome.run is not None:
        await outcome.run


def _copy_message(message: Mapping[str, Any]) -> Any:
    """Encode and decode as over the wire, so that handlers get a copy with JSON values only."""
    return jsonrpc.loads(jsonrpc.dumps(message))


async def _forward_messages(outbox: Outbox, on_message: MessageCallback) -> None:
    try:
        while (messages := await outbox.read(READ_TIMEOUT_SECONDS)) is not None:
            for message in messages:
                await on_message(jsonrpc.loads(message))
    finally:
        outbox.abort()  # A call must not wait for a reader that failed.


async def complete_rounds(
    send: Callable[[JSONObject], Awaitable[JSONObject]],
    params: Mapping[str, Any],
    respond: Callable[[JSONObject], Awaitable[Any]],
) -> JSONObject:
    """Return the result of a request after all rounds of input requests.

    `send` sends the request with the params of a round, and `respond` returns the response to an input request.
    """
    round_params = dict(params)
    while True:
        result = await send(round_params)
        if result.get("resultType") != INPUT_REQUIRED:
            return result

        round_params = dict(params)
        input_requests = result.get("inputRequests", {})
        if input_requests:
            round_params["inputResponses"] = {key: await respond(request) for key, request in input_requests.items()}
        if "requestState" in result:
            round_params["requestState"] = result["requestState"]


async def iter_entries(
    request: RequestFunction,
    method: str,
    member: str,
    params: Mapping[str, Any] | None = None,
    *,
    max_pages: int | None = None,
) -> AsyncIterator[JSONObject]:
    """Yield the entries of all pages of a list. Raises the exceptions of `request`.

    `member` is the name of the entries in the results.
    """
    page_params, count = dict(params or {}), 0
    while max_pages is None or count < max_pages:
        page = await request(method, page_params)
        count += 1
        for entry in page[member]:
            yield entry
        if page.get("nextCursor") is None:
            return
        page_params = {**page_params, "cursor": page["nextCursor"]}
