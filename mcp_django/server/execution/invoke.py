"""Handler invocation: runs user code and classifies its exceptions.

No other module runs user code. A ToolError is for the model, including one that the server's translator returns. An
MCPError is for the client. Any other exception is a bug: its text stays in the log, and the response carries only its
reference.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from mcp_django.protocol.errors import (
    InternalError,
    InvalidParams,
    MCPError,
    MissingClientCapability,
    NotFound,
    ResourceNotFound,
    ToolError,
    URLElicitationRequired,
)
from mcp_django.schema import ArgumentError
from mcp_django.server.calls.call import Call
from mcp_django.server.calls.internal_errors import is_bug, report
from mcp_django.server.calls.outcome import Outcome
from mcp_django.server.client_requests.conversation import Conversation, InputRequired, Suspended, is_suspension
from mcp_django.server.composition.mounting import innermost
from mcp_django.server.context.background import Job
from mcp_django.server.context.context import Context
from mcp_django.server.execution.permissions import permit, ration
from mcp_django.server.injection.dependencies import Dependencies
from mcp_django.server.injection.handler import Handler
from mcp_django.server.ports import Overloaded
from mcp_django.server.primitives.base import Primitive, Resource, ResourceTemplate, Tool
from mcp_django.server.primitives.hooks import admit, guarded
from mcp_django.server.primitives.results import Relayed, ToolResult, tool_error, tool_result
from mcp_django.server.primitives.streaming import STREAMS, collected

if TYPE_CHECKING:
    pass

logger = logging.getLogger("mcp_django.server")


READING = "resources/read"
_NOTHING: Any = object()


class TimedOut(Exception):
    """The handler exceeded its time limit."""


async def call_tool(call: Call, tool: Tool, arguments: dict[str, Any]) -> dict[str, Any]:
    """Run a tool and return the CallToolResult body.

    Returns InputRequired for a round that ends with requests to the client. Raises MCPError and Overloaded only, or is
    cancelled.
    """
    conversation = call.era.resume(call)  # an invalid `requestState` is rejected before anything runs
    if conversation is not None and tool.single_use_state:
        await conversation.spend()

    try:
        tool.parameters.check(arguments)
        values = tool.parameters.convert(arguments)
        if tool.is_direct and conversation is None and _is_unbound(call, tool):
            value = await tool.handler.fn(**values)
            if type(value) in STREAMS:
                value = await collected(value, Context(call, tool), tool.output, _is_result)
        else:
            value = await _suspendable(call, tool, Context(call, tool, conversation), _begin(call, tool, values))
            if type(value) is InputRequired:
                return value
        return call.revision.shape_call_result(tool_result(tool, value))
    except ArgumentError as problem:
        if not call.revision.argument_errors_in_result:
            raise InvalidParams(str(problem)) from None
        return tool_error(str(problem))
    except ToolError as problem:
        return tool_error(problem)
    except URLElicitationRequired as problem:
        if _knows_url_errors(call):
            raise
        return tool_error(_pages(problem))
    except (MCPError, Overloaded):
        raise
    except TimedOut as problem:
        return tool_error(str(problem))
    except BaseException as problem:
        return tool_error(sorted_out(call, f"tool {tool.name!r}", problem))


def _begin(call: Call, tool: Tool, values: dict[str, Any]) -> Callable[[Context], Awaitable[Any]]:
    return lambda context: _run(call, tool, tool.handler, values, context)


async def call_within(call: Call, tool: Tool, arguments: dict[str, Any], conversation: Conversation) -> dict[str, Any]:
    """Run a tool inside the call of another tool, whose conversation it shares.

    Returns the CallToolResult body. Raises Suspended when the tool waits for another round, MissingClientCapability and
    Overloaded. The result carries every other failure.
    """
    call, tool = innermost(call, tool)

    try:
        tool.parameters.check(arguments)
        values = tool.parameters.convert(arguments)
        value = await _timed(call, tool, _begin(call, tool, values)(Context(call, tool, conversation)))
        return call.revision.shape_call_result(tool_result(tool, value))
    except (MissingClientCapability, Overloaded):
        raise
    except URLElicitationRequired as problem:
        return tool_error(_pages(problem))
    except ToolError as problem:
        return tool_error(problem)
    except (ArgumentError, TimedOut, MCPError) as problem:
        return tool_error(str(problem))
    except BaseException as problem:
        if is_suspension(problem):
            raise
        try:
            return tool_error(sorted_out(call, f"tool {tool.name!r}", problem))
        except MCPError as told:
            return tool_error(str(told))


async def read_within(
    call: Call, primitive: Resource | ResourceTemplate, values: dict[str, Any], conversation: Conversation
) -> Any:
    """Read a resource inside another call, whose conversation it shares.

    Its guards, interceptors and timeout apply. Raises the errors of the resource, and HandlerTimeout.
    """
    call, primitive = innermost(call, primitive)
    context = Context(call, primitive, conversation)
    return await _timed(call, primitive, _run(call, primitive, primitive.handler, values, context))


async def pass_on(context: Context, tool: Tool, arguments: dict[str, Any]) -> Any:
    """Run `tool` in place of the running tool, as if the client had called it.

    Its permission, checks, guards, timeout and transactions apply. The conversation and the request stay the same.

    Raises the errors of the tool, ArgumentError, InsufficientScope, and InvalidParams if the caller may not use it.
    """
    call = context._call
    await permit(call, tool, InvalidParams(f"Unknown tool: {tool.name}"), arguments)
    if too_often := await ration(call, tool):
        raise ToolError(too_often)

    tool.parameters.check(arguments)
    values = tool.parameters.convert(arguments)
    context.stand_for(tool, arguments)

    value = await _timed(call, tool, _begin(call, tool, values)(context))
    if tool.output is None or type(value) in (ToolResult, Relayed):
        return value
    return tool.output.structured(value)


async def run_primitive(
    call: Call, primitive: Primitive, values: dict[str, Any], *, handler: Handler | None = None
) -> Any:
    """Run the handler of a prompt or resource, or a completer.

    Returns its value, or InputRequired. Raises MCPError and Overloaded only, or is cancelled.
    """
    runs = handler or primitive.handler
    context = Context(call, primitive, call.era.resume(call))

    try:
        return await _suspendable(call, primitive, context, lambda c: _run(call, primitive, runs, values, c))
    except URLElicitationRequired as problem:
        if _knows_url_errors(call):
            raise
        raise InternalError(_pages(problem)) from None
    except (MCPError, Overloaded):
        raise
    except (ToolError, TimedOut) as problem:
        raise InternalError(str(problem)) from None
    except BaseException as problem:
        raise InternalError(str(sorted_out(call, f"{primitive.kind} {primitive.key!r}", problem))) from None


def _knows_url_errors(call: Call) -> bool:
    """Return True if the client supports URLElicitationRequired errors.

    One revision defines this error; the next one forbids it.
    """
    return call.revision.url_elicitation_error and call.supports({"elicitation": {"url": {}}})


def _pages(problem: URLElicitationRequired) -> str:
    """Describe the pages as text, for clients without the error."""
    pages = [f"{page.get('message', 'Open this page')}: {page.get('url', '')}" for page in problem.elicitations]
    return "\n".join([problem.message, *pages])


async def run_handler(call: Call, handler: Handler, values: dict[str, Any], context: Context) -> Any:
    """Inject parameters and run a handler, in a transaction if configured.

    The transaction covers the dependencies and the handler.
    """
    jobs: list[Job] = []
    context.jobs = jobs
    try:
        value = await _in_transaction(call, handler, values, context)
    finally:
        context.jobs = None
    if jobs:
        call.fate.leave(jobs)
    return value


async def _in_transaction(call: Call, handler: Handler, values: dict[str, Any], context: Context) -> Any:
    databases = handler.databases(_atomic(call))
    if not databases:
        return await _filled_in(call, handler, values, context)
    async with call.server.executor.atomic(databases):
        context.in_transaction = True
        try:
            value = await _filled_in(call, handler, values, context)
        finally:
            context.in_transaction = False
        if context.unanswered is not None:
            # The round ends with a request to the client, whatever the handler returned. The next round repeats the
            # handler.
            raise Suspended
        return value


async def _filled_in(call: Call, handler: Handler, values: dict[str, Any], context: Context) -> Any:
    if handler.injected is not None:
        handler.injected.fill(values, call, context)
        if handler.dependencies is not None:
            return await _with_dependencies(call, handler, handler.dependencies, values, context)
    return await _value(call, handler, values, context)


async def _with_dependencies(
    call: Call, handler: Handler, dependencies: Dependencies, values: dict[str, Any], context: Context
) -> Any:
    value: Any = _NOTHING
    async with AsyncExitStack() as stack:
        await dependencies.fill(values, call, context, stack)
        value = await _value(call, handler, values, context)
    if value is _NOTHING:
        raise RuntimeError("A dependency suppressed the exception of its dependent; raise it again after cleanup")
    return value


async def _value(call: Call, handler: Handler, values: dict[str, Any], context: Context) -> Any:
    value = await handler.run(call.server.executor, values)
    if type(value) in STREAMS and (tool := context.tool) is not None:
        return await collected(value, context, tool.output, _is_result)
    return value


def _is_result(piece: Any) -> bool:
    return type(piece) is ToolResult


async def is_there(call: Call, primitive: Resource | ResourceTemplate, values: dict[str, Any]) -> bool:
    """Return True if the resource exists for a caller that may use the primitive.

    Only primitives with `probe` are run. Raises Overloaded, and bugs of the handler.
    """
    if not primitive.probe:
        return True

    call, primitive = innermost(call, primitive)
    lease = call.server.executor.enter()
    try:
        async with asyncio.timeout(_limit(call, primitive)):
            return await _run(call, primitive, primitive.handler, dict(values), Context(call, primitive)) is not None
    except Overloaded:
        raise
    except Exception as problem:
        told = problem if isinstance(problem, ToolError) else call.server.ports.translate(problem)
        if isinstance(told, ToolError | NotFound | ResourceNotFound):
            return False
        raise
    finally:
        lease.close()


def sorted_out(call: Call, what: str, problem: BaseException) -> str | ToolError:
    """Translate an exception into a text for the client, or into a ToolError.

    Uses the server's translator; for a bug, the text is its reference. Raises an MCPError that the translator returns,
    and exceptions that are not failures of the code, such as cancellation.
    """
    if not is_bug(problem):
        raise problem

    translated = call.server.ports.translate(problem) if isinstance(problem, Exception) else None
    if isinstance(translated, MCPError):
        raise translated from None
    if isinstance(translated, NotFound) and call.method == READING:
        raise ResourceNotFound(call.root.params["uri"]) from None
    if translated is None:
        return report(call.root.server, what, problem, call.fate)
    return translated if isinstance(translated, ToolError) else str(translated)


async def _run(call: Call, primitive: Primitive, handler: Handler, values: dict[str, Any], context: Context) -> Any:
    """Run a handler inside the hooks of its primitive.

    The primitive's own handler runs inside guards and interceptors. A completer runs after the guards.
    """
    try:
        if not primitive.is_guarded:
            return await run_handler(call, handler, values, context)
        if handler is primitive.handler:
            return await guarded(primitive, context, lambda: run_handler(call, handler, dict(values), context))
        await admit(primitive, context)
        return await run_handler(call, handler, values, context)
    finally:
        if context.farewells is not None:
            farewells, context.farewells = context.farewells, None
            await farewells.said()


async def _suspendable(
    call: Call, primitive: Primitive, context: Context, start: Callable[[Context], Awaitable[Any]]
) -> Any:
    """Run a handler; a pending request to the client overrides its value."""
    try:
        value = await _timed(call, primitive, start(context))
    except BaseException as problem:
        if not is_suspension(problem):
            raise

    else:
        if context.unanswered is None:
            return value
        logger.warning(
            "Suspension caught by %s %r; its handler must not catch BaseException", primitive.kind, primitive.key
        )
    waiting = context.unanswered
    if waiting is None:
        raise RuntimeError("suspended without a pending request to the client")
    return waiting.input_required()


def _limit(call: Call, primitive: Primitive) -> float | None:
    """Return the time limit of the primitive, its server, or the server's host."""
    if primitive.timeout is not None:
        return primitive.timeout
    limit = call.server.options.timeout
    return limit if limit is not None or call.outer is None else _limit(call.outer, primitive)


def _atomic(call: Call) -> tuple[str, ...]:
    atomic = call.server.options.atomic
    return atomic if atomic or call.outer is None else _atomic(call.outer)


def _is_unbound(call: Call, primitive: Primitive) -> bool:
    """Return True if neither a time limit nor a transaction applies."""
    atomic = primitive.handler.atomic
    return _limit(call, primitive) is None and not (_atomic(call) if atomic is None else atomic)


async def _timed(call: Call, primitive: Primitive, work: Awaitable[Any]) -> Any:
    limit = _limit(call, primitive)

    try:
        if limit is None:
            return await work
        async with asyncio.timeout(limit) as scope:
            return await work
    except asyncio.CancelledError:
        # Middleware may have passed on another call than the cancelled one.
        call.cancelled = True
        raise
    except TimeoutError:
        if limit is None or not scope.expired():
            raise
        # A plain function continues in its thread and checks this flag.
        call.cancelled = True
        call.fate.failed(Outcome.TIMEOUT)
        raise TimedOut(f"The {primitive.kind} took longer than {limit:g} seconds and was stopped") from None
