"""Handler invocation: runs user code and classifies its exceptions.

No other module runs user code. A ToolError is for the model, including one that the server's translator returns. An
MCPError is for the client. Any other exception is a bug: its text stays in the log, and the response carries only its
reference.
"""

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any, TypeVar

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
from mcp_django.protocol.jsonrpc import JSONObject
from mcp_django.protocol.log_text import get_logger
from mcp_django.schema import ArgumentError
from mcp_django.server.calls.background import BackgroundJob
from mcp_django.server.calls.call import Call
from mcp_django.server.composition.mounting import get_client_name, resolve_innermost
from mcp_django.server.context.around import RolledBack, find_around, run_within
from mcp_django.server.context.context import Context
from mcp_django.server.context.conversation import (
    CallSuspended,
    ClientConversation,
    InputRequired,
    is_suspension,
)
from mcp_django.server.execution.failures import translate_failure
from mcp_django.server.execution.hooks import check_guards, run_with_hooks
from mcp_django.server.execution.permissions import check_permission, count_use
from mcp_django.server.execution.streaming import STREAM_TYPES, collect_stream
from mcp_django.server.injection.handler import Handler
from mcp_django.server.ports import AttemptControl, Outcome, Overloaded
from mcp_django.server.primitives.base import Primitive, Resource, ResourceTemplate, Tool
from mcp_django.server.primitives.results import (
    ExtensionResult,
    RelayedResult,
    ToolResult,
    build_tool_error,
    build_tool_result,
)

logger = get_logger("mcp_django.server")


T = TypeVar("T")
_UNSET: object = object()


class HandlerTimeout(Exception):
    """The handler exceeded its time limit."""


async def call_tool(call: Call, tool: Tool, arguments: JSONObject) -> JSONObject:
    """Run a tool and return the CallToolResult body.

    Returns InputRequired for a round that ends with requests to the client. Raises MCPError and Overloaded only, or is
    cancelled.
    """
    conversation = call.era.resume_conversation(call)  # an invalid `requestState` is rejected before anything runs
    if conversation is not None and tool.single_use_state:
        await conversation.consume_state()

    if tool.max_result is not None:
        call.record.max_result_bytes = tool.max_result

    try:
        tool.parameters.check(arguments)
        values = tool.parameters.convert(arguments)

        options, atomic = call.server.options, tool.handler.atomic
        is_plain = tool.timeout is None and options.timeout is None and not call.server.around
        if (
            tool.is_direct
            and is_plain
            and not (options.atomic if atomic is None else atomic)
            and call.host_call is None
            and conversation is None
        ):
            value = await tool.handler.fn(**values)
            if type(value) in STREAM_TYPES:
                value = await collect_stream(value, Context(call, tool), tool.output)
        else:
            context = Context(call, tool, conversation)
            context.is_outermost = True
            value = await _run_suspendable(call, tool, tool.handler, values, context)
            if type(value) is InputRequired:
                return value

        if type(value) is ExtensionResult:
            return build_extension_result(call, value)
        return call.revision.shape_call_result(build_tool_result(tool, value))
    except BaseException as problem:
        result = _build_error_result(call, tool, problem)
        if result is None:
            raise
        return result


def build_extension_result(call: Call, result: ExtensionResult) -> JSONObject:
    """Build the body of a result with a type of an extension.

    Raises:
        MissingClientCapability, MethodNotFound: the client did not declare the extension.
        LookupError: no extension of the server has the type.
    """
    root = call.root
    root.server.extensions.find_for_result(result).require_declaration(root)
    body = dict(result)
    return {"resultType": result.result_type, **body} if call.revision.result_type else body


def _build_error_result(call: Call, tool: Tool, problem: BaseException) -> JSONObject | None:
    """Return the result that describes an exception to the model; None for an error of the protocol."""
    if isinstance(problem, ArgumentError):
        if not call.revision.argument_errors_in_result:
            raise InvalidParams(str(problem)) from None
        return build_tool_error(str(problem))
    if isinstance(problem, ToolError):
        return build_tool_error(problem)
    if isinstance(problem, URLElicitationRequired):
        return None if _supports_url_errors(call) else build_tool_error(_describe_pages(problem))
    if isinstance(problem, MCPError | Overloaded):
        return None
    if isinstance(problem, HandlerTimeout):
        return build_tool_error(str(problem))
    return build_tool_error(translate_failure(call, f"tool {tool.name!r}", problem))


async def call_nested_tool(
    call: Call, tool: Tool, arguments: JSONObject, conversation: ClientConversation
) -> JSONObject:
    """Run a tool inside the call of another tool, whose conversation it shares.

    Returns the CallToolResult body. Raises CallSuspended when the tool waits for another round, MissingClientCapability
    and Overloaded. The result carries every other failure.
    """
    call, tool = resolve_innermost(call, tool)

    try:
        tool.parameters.check(arguments)
        values = tool.parameters.convert(arguments)
        value = await _run_within_limits(call, tool, tool.handler, values, Context(call, tool, conversation))
        return call.revision.shape_call_result(build_tool_result(tool, value))
    except (MissingClientCapability, Overloaded):
        raise
    except URLElicitationRequired as problem:
        return build_tool_error(_describe_pages(problem))
    except ToolError as problem:
        return build_tool_error(problem)
    except (ArgumentError, HandlerTimeout, MCPError) as problem:
        return build_tool_error(str(problem))
    except BaseException as problem:
        if is_suspension(problem):
            raise
        try:
            return build_tool_error(translate_failure(call, f"tool {tool.name!r}", problem))
        except MCPError as translated:
            return build_tool_error(str(translated))


async def read_nested_resource(
    call: Call, primitive: Resource | ResourceTemplate, values: dict[str, Any], conversation: ClientConversation
) -> Any:
    """Read a resource inside another call, whose conversation it shares.

    Its guards, interceptors and timeout apply. Raises the errors of the resource, and HandlerTimeout.
    """
    call, primitive = resolve_innermost(call, primitive)
    context = Context(call, primitive, conversation)
    return await _run_within_limits(call, primitive, primitive.handler, values, context)


async def delegate_to_tool(context: Context, tool: Tool, arguments: JSONObject, *, sets_target: bool = False) -> Any:
    """Run `tool` in place of the running tool, as if the client had called it.

    Its permission, checks, guards, timeout and transactions apply. The conversation and the request stay the same. If
    `sets_target`, records of the call name `tool` in place of the running tool.

    Raises the errors of the tool, ArgumentError, InsufficientScope, and InvalidParams if the caller may not use it.
    """
    call = context.call
    await check_permission(call, tool, InvalidParams(f"Unknown tool: {tool.name}"), arguments)
    if sets_target:
        call.record.target = get_client_name(context, tool.name)
    if rate_error := await count_use(call, tool):
        raise ToolError(rate_error)

    tool.parameters.check(arguments)
    values = tool.parameters.convert(arguments)
    context.set_running_tool(tool, arguments)

    value = await _run_within_limits(call, tool, tool.handler, values, context)
    if tool.output is None or type(value) in (ToolResult, RelayedResult):
        return value
    return tool.output.to_structured(value)


async def run_primitive(
    call: Call, primitive: Primitive, values: dict[str, Any], *, handler: Handler | None = None
) -> Any:
    """Run the handler of a prompt or resource, or a completer.

    Returns its value, or InputRequired. Raises MCPError and Overloaded only, or is cancelled.
    """
    context = Context(call, primitive, call.era.resume_conversation(call))

    try:
        return await _run_suspendable(call, primitive, handler or primitive.handler, values, context)
    except URLElicitationRequired as problem:
        if _supports_url_errors(call):
            raise
        raise InternalError(_describe_pages(problem)) from None
    except (MCPError, Overloaded):
        raise
    except (ToolError, HandlerTimeout) as problem:
        raise InternalError(str(problem)) from None
    except BaseException as problem:
        raise InternalError(str(translate_failure(call, f"{primitive.kind} {primitive.key!r}", problem))) from None


async def run_provider(context: Context, run: Callable[[], Awaitable[T]]) -> T:
    """Await a function of a provider inside the context managers of the server.

    Raises the exceptions of the provider without managers; with them MCPError and Overloaded, as a handler does.
    """
    around = find_around(context.call)
    if not around:
        return await run()

    try:
        return await run_within(around, context, run)
    except (MCPError, Overloaded):
        raise
    except ToolError as problem:
        raise InternalError(str(problem)) from None
    except BaseException as problem:
        raise InternalError(str(translate_failure(context.call, "a provider", problem))) from None


def _supports_url_errors(call: Call) -> bool:
    """Return True if the client supports URLElicitationRequired errors.

    One revision defines this error; the next one forbids it.
    """
    return call.revision.url_elicitation_error and call.supports({"elicitation": {"url": {}}})


def _describe_pages(problem: URLElicitationRequired) -> str:
    """Describe the pages as text, for clients without the error."""
    pages = [f"{page.get('message', 'Open this page')}: {page.get('url', '')}" for page in problem.elicitations]
    return "\n".join([problem.message, *pages])


async def run_handler(call: Call, handler: Handler, values: dict[str, Any], context: Context) -> Any:
    """Inject parameters and run a handler, in a transaction if configured.

    The transaction covers the dependencies and the handler. Background jobs are added to the call after it.
    """
    databases = handler.get_databases(_find_databases(call))
    jobs: list[BackgroundJob] = []
    context.jobs = jobs

    try:
        if databases:
            async with call.server.ports.executor.atomic(databases):
                context.in_transaction = True
                try:
                    value = await _inject_and_run(call, handler, values, context)
                finally:
                    context.in_transaction = False
                if context.unfinished_conversation is not None:
                    # The round ends with a request to the client, whatever the handler returned. The next round repeats
                    # the handler.
                    raise CallSuspended
                if call.record.attempt is not None:
                    await _confirm_attempt(call.record.attempt, call, databases, value, context)
        else:
            value = await _inject_and_run(call, handler, values, context)
    finally:
        context.jobs = None

    if jobs:
        call.record.add_jobs(jobs)
    return value


async def _confirm_attempt(
    attempt: AttemptControl, call: Call, databases: Sequence[str], value: object, context: Context
) -> None:
    tool = context.tool
    is_result = context.is_outermost and tool is not None and type(value) is not ExtensionResult

    def build_result() -> JSONObject:
        assert tool is not None  # see is_result
        return call.revision.shape_call_result(build_tool_result(tool, value))

    await attempt.confirm(databases, call, build_result if is_result else None)


async def _inject_and_run(call: Call, handler: Handler, values: dict[str, Any], context: Context) -> object:
    """Fill the injected parameters, call the function, and collect the pieces of its result."""
    if handler.injected is not None:
        handler.injected.fill(values, context)
    if handler.dependencies is None:
        return await _call_function(call, handler, values, context)

    value: object = _UNSET
    if call.record.attempt is not None:
        call.record.attempt.has_begun = True
    async with AsyncExitStack() as stack:
        await handler.dependencies.fill(values, context, call.server.ports.executor, stack)
        value = await _call_function(call, handler, values, context)
    if value is _UNSET:
        raise RuntimeError("A dependency suppressed the exception of its dependent; raise it again after cleanup")
    return value


async def _call_function(call: Call, handler: Handler, values: dict[str, Any], context: Context) -> object:
    attempt, on_value = call.record.attempt, None
    if attempt is not None and _is_final(call, handler, context):
        on_value = functools.partial(_keep_result, attempt, call, context)
    value = await handler.run(call.server.ports.executor, values, attempt, on_value)
    if type(value) in STREAM_TYPES and (tool := context.tool) is not None:
        return await collect_stream(value, context, tool.output)
    return value


def _is_final(call: Call, handler: Handler, context: Context) -> bool:
    """Return True if the call ends with the function: nothing that runs after it may change its result."""
    tool = context.tool
    return (
        context.is_outermost
        and tool is not None
        and not context.in_transaction
        and not tool.has_hooks
        and handler.dependencies is None
        and not find_around(call)
        and not call.root.server.middleware
        and not call.server.middleware
    )


def _keep_result(attempt: AttemptControl, call: Call, context: Context, value: object) -> None:
    tool = context.tool
    is_open = context.unfinished_conversation is not None or context.cleanup_callbacks is not None
    is_open = is_open or call.record.cancelled
    if tool is None or is_open or type(value) is ExtensionResult or type(value) in STREAM_TYPES:
        return
    if not inspect.isawaitable(value):
        attempt.keep_result(call, lambda: call.revision.shape_call_result(build_tool_result(tool, value)))


async def resource_exists(call: Call, primitive: Resource | ResourceTemplate, values: dict[str, Any]) -> bool:
    """Return True if the resource exists for a caller that may use the primitive.

    Only primitives with `check_exists` are run. Raises Overloaded, and bugs of the handler.
    """
    if not primitive.check_exists:
        return True

    call, primitive = resolve_innermost(call, primitive)
    with call.server.ports.executor.context():
        try:
            context = Context(call, primitive)
            return await _run_within_limits(call, primitive, primitive.handler, dict(values), context) is not None
        except Overloaded:
            raise
        except Exception as problem:
            translated = problem if isinstance(problem, ToolError) else call.server.ports.translate_exception(problem)
            if isinstance(translated, ToolError | NotFound | ResourceNotFound):
                return False
            raise


async def _run_suspendable(
    call: Call, primitive: Primitive, handler: Handler, values: dict[str, Any], context: Context
) -> object:
    """Run a handler; a pending request to the client overrides its value."""
    try:
        value = await _run_within_limits(call, primitive, handler, values, context)
    except BaseException as problem:
        if not is_suspension(problem):
            raise
    else:
        if context.unfinished_conversation is None:
            return value
        logger.warning(
            "Suspension caught by %s %r; its handler must not catch BaseException", primitive.kind, primitive.key
        )

    conversation = context.unfinished_conversation
    if conversation is None:
        raise RuntimeError("suspended without a pending request to the client")
    return conversation.build_input_required()


async def _run_within_limits(
    call: Call, primitive: Primitive, handler: Handler, values: dict[str, Any], context: Context
) -> object:
    """Run a handler in its time limit, context managers and hooks.

    The primitive's own handler runs inside guards and interceptors. A completer runs after the guards. Raises
    HandlerTimeout after the time limit.
    """

    async def run() -> Any:
        try:
            if not primitive.has_hooks:
                value = await run_handler(call, handler, values, context)
            elif handler is primitive.handler:
                value = await run_with_hooks(
                    primitive, context, lambda: run_handler(call, handler, dict(values), context)
                )
            else:
                await check_guards(primitive, context)
                value = await run_handler(call, handler, values, context)
        finally:
            if context.cleanup_callbacks is not None:
                callbacks = context.cleanup_callbacks
                context.cleanup_callbacks = None
                await callbacks.run()
        if context.is_rolled_back:
            raise RolledBack(value)
        return value

    limit = _find_timeout(call, primitive)
    try:
        async with asyncio.timeout(limit) as scope:
            return await run_within(find_around(call), context, run)
    except RolledBack as end:
        return end.value
    except asyncio.CancelledError:
        call.record.cancelled = True  # A plain function continues in its thread and checks this flag.
        raise
    except TimeoutError:
        if not scope.expired():
            raise
        call.record.cancelled = True
        call.record.set_failure(Outcome.TIMEOUT)
        raise HandlerTimeout(f"The {primitive.kind} took longer than {limit:g} seconds and was stopped") from None


def _find_timeout(call: Call, primitive: Primitive) -> float | None:
    """Return the time limit of the primitive, its server, or the server's host."""
    if primitive.timeout is not None:
        return primitive.timeout
    limit = call.server.options.timeout
    return limit if limit is not None or call.host_call is None else _find_timeout(call.host_call, primitive)


def _find_databases(call: Call) -> tuple[str, ...]:
    atomic = call.server.options.atomic
    return atomic if atomic or call.host_call is None else _find_databases(call.host_call)
