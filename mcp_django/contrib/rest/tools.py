"""Tools of view actions, with schemas that are read late.

Input and output are read when a tool is first listed or called. By then serializers and routes are complete, which is
not the case while apps are loaded.
"""

import contextlib
import functools
import inspect
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from weakref import WeakSet

from django.core.checks import CheckMessage, Error, register
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.db import connections
from django.http import Http404, HttpRequest
from django.urls import URLResolver, get_resolver, get_urlconf
from rest_framework.exceptions import APIException
from rest_framework.views import set_rollback

from mcp_django import conf
from mcp_django.aio import off_loop
from mcp_django.contrib.http_tools.argument_layout import OperationParameters
from mcp_django.contrib.http_tools.replies import build_exception_reply
from mcp_django.contrib.http_tools.tools import OperationOutput, Schema, wrap_schema
from mcp_django.contrib.rest.actions import ViewAction
from mcp_django.contrib.rest.compilation import PlanCompilation
from mcp_django.contrib.rest.openapi import SharedComponents
from mcp_django.contrib.rest.plan import RequestPlan
from mcp_django.contrib.rest.plan_builder import PlanBuilder, ViewOptions, resolve_route
from mcp_django.contrib.rest.requests.preparation import prepare_request
from mcp_django.contrib.rest.responses import build_error_result, build_result
from mcp_django.contrib.rest.views import build_fake_request, build_fake_view
from mcp_django.extensions.calls import Context, get_logger
from mcp_django.extensions.errors import DeclarationError
from mcp_django.extensions.event_loop import find_running_loop
from mcp_django.extensions.internal_requests import build_request
from mcp_django.extensions.primitives import AtomicDatabases, CallCheck, Tool, ToolResult
from mcp_django.extensions.schemas import (
    HeaderParam,
    JSONMapping,
    JSONObject,
    SchemaChecker,
    call_in_default_language,
    check_schema,
    to_json_schema,
)

logger = get_logger("mcp_django.rest")
T = TypeVar("T")


class ViewToolOutput(OperationOutput):
    """Structured result of a tool: the response of the view, without the parts that violate the schema.

    The caller has wrapped the content in "result" where that is necessary. The text has the whole response.
    """

    logger = logger
    violation_message = "Response violates the output schema, see outputs=: %s: %s"

    def to_structured(self, value: object) -> Any:
        """Return the valid part of the response, or the whole one without a valid part."""
        found = super().to_structured(value)
        valid = self.extract_valid(found)
        return found if valid is None else valid


class UnusableViewError(DeclarationError):
    """A view without a usable route, which E020 reports."""

    has_own_check = True


class CompiledPlan:
    """Compiled plan with validated schemas."""

    def __init__(self, name: str, plan: RequestPlan) -> None:
        layout = plan.build_layout()
        gate = layout.arrange_schema(plan.build_gate_schema())
        schema = to_json_schema(layout.arrange_schema(plan.build_schema()))
        try:
            check_schema(schema, name)
        except DeclarationError as problem:
            logger.warning("Invalid input schema replaced by a simple one: %s: %s", name, problem)
            schema = gate

        self.plan = plan
        self.layout = layout
        self.parameters = OperationParameters(layout.shorten_schema(schema), layout, SchemaChecker(gate))
        self.output = _build_output(plan.response_schema, name)

    @property
    def wrapped(self) -> bool | None:
        """True if the output has the body under "result"; None without an output schema."""
        return None if self.output is None else self.output.is_wrapped


def _build_output(schema: Schema | None, name: str) -> ViewToolOutput | None:
    if not schema:
        return None
    schema = to_json_schema(schema)
    wrapped = schema.get("type") != "object"
    schema = wrap_schema(schema, is_required=True) if wrapped else schema
    try:
        return ViewToolOutput(schema, check_schema(schema, name), wrapped=wrapped, name=name)
    except DeclarationError as problem:
        logger.warning("Invalid output schema ignored: %s: %s", name, problem)
        return None


@dataclass(eq=False, repr=False)
class ExposedAction:
    """Exposed action with its options and its compiled plans."""

    action: ViewAction
    options: ViewOptions
    kwargs: JSONMapping
    """Captured path arguments set by the project: values, or functions of the Context."""
    host: str | None
    on_compiled: Callable[[CompiledPlan], None] = lambda compiled: None
    """Callback for newly compiled plans.

    Plans are compiled by a list, or by the check of the first call's arguments.
    """
    _compiled_plans: dict[URLResolver, CompiledPlan] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __repr__(self) -> str:
        return f"<{self.action.subject.name}.{self.action.name}>"

    def has_plan(self) -> bool:
        """Return True if the plan for the active URLconf is compiled."""
        return get_resolver(get_urlconf()) in self._compiled_plans

    def get_compiled_plan(self, components: SharedComponents | None = None) -> CompiledPlan:
        """Return the compiled plan for the active URLconf.

        `components` are the descriptions of serializers that other plans have used.

        Raises:
            ImproperlyConfigured: the options conflict with the route or the view.
        """
        resolver = get_resolver(get_urlconf())
        found = self._compiled_plans.get(resolver)
        if found is None:
            with self._lock:
                found = self._compiled_plans.get(resolver)
                if found is None:
                    found = run_off_loop(lambda: call_in_default_language(self._compile, components))
                    self.on_compiled(found)
                    self._compiled_plans[resolver] = found
        return found

    def find_compiled_plan(self, components: SharedComponents | None = None) -> CompiledPlan | None:
        """Return the compiled plan; None if that fails, which the tool's list entry reports."""
        with contextlib.suppress(Exception):
            return self.get_compiled_plan(components)
        return None

    def get_listed_plan(self) -> CompiledPlan:
        """Return the compiled plan for a list.

        Raises:
            UnusableViewError: the view has no route, or its route conflicts with the options.
        """
        try:
            return self.get_compiled_plan()
        except ImproperlyConfigured as problem:
            raise UnusableViewError(f"{self!r}: {problem}") from problem

    def is_permitted(self, principal: object) -> bool:
        """Return True if the view's permission classes accept the principal.

        No row is checked. A permission class that needs a real request and fails counts as a denial.
        """
        callback: Any = self.get_compiled_plan().plan.callback
        http_request = build_fake_request(self.action, principal)
        try:
            with prepare_request(self.options.prepare, http_request):
                view, request = build_fake_view(
                    self.action, getattr(callback, "actions", {}), callback.initkwargs, http_request
                )
                view.check_permissions(request)
        except (APIException, PermissionDenied, Http404):
            return False
        return True

    def build_call_checks(self) -> tuple[CallCheck, ...]:
        """Return the check that the view's permission classes make at each call."""
        classes = self.action.kwargs.get(
            "permission_classes", getattr(self.action.subject.cls, "permission_classes", ())
        )
        names = [_describe_permission_class(one) for one in classes]
        return (
            (CallCheck(f"the view's {', '.join(names)}", lambda ctx: self.is_permitted(ctx.principal)),)
            if names
            else ()
        )

    def _compile(self, components: SharedComponents | None) -> CompiledPlan:
        request = build_fake_request(self.action)
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(prepare_request(self.options.prepare, request))
            except Exception:
                logger.warning("Request for the schemas is unprepared: %r", self, exc_info=True)
            return CompiledPlan(repr(self), PlanBuilder(self.action, self.options, request, components).build())

    def run(self, context: Context, arguments: JSONObject) -> Any:
        """Send one request to the view and return its ToolResult.

        For an async view the result is awaitable.
        """
        compiled = self.get_compiled_plan()
        plan = compiled.plan
        request: HttpRequest | None = None
        try:
            fixed = {name: value(context) if callable(value) else value for name, value in self.kwargs.items()}
            path, kwargs, match = plan.resolve_path(arguments, fixed)
            request = build_request(
                context,
                plan.action.method,
                path,
                plan.build_query(arguments),
                plan.build_body(arguments),
                accept=plan.build_accept_header(arguments),
                host=self.host,
                match=match,
            )

            build = functools.partial(
                build_result,
                request=request,
                wrapped=compiled.wrapped,
                convert=plan.build_converter(request, arguments, compiled.layout.arrange),
            )
            with prepare_request(self.options.prepare, request) as is_surrounded:
                response = plan.callback(request, **kwargs)
                if not inspect.isawaitable(response):
                    return build(response)
                if is_surrounded:
                    _discard(response)
                    raise ImproperlyConfigured(f"{self!r} is async; its prepare= must not return a context manager")
            return self._await_response(response, request, build, context)
        except Exception as problem:
            return _handle_exception(problem, request)

    async def _await_response(
        self, response: Awaitable[Any], request: HttpRequest, build: Callable[[Any], ToolResult], context: Context
    ) -> Any:
        executor = context.server.ports.executor
        try:
            awaited_response = await response
            return await executor.run(build, awaited_response)
        except Exception as problem:
            return await executor.run(_handle_exception, problem, request)


def _discard(response: object) -> None:
    """Close a coroutine that will not run."""
    close = getattr(response, "close", None)
    if close is not None:
        close()


def _handle_exception(problem: Exception, request: HttpRequest | None) -> ToolResult:
    """Convert an exception as Django does, or raise it again."""
    result = build_error_result(build_exception_reply(problem, request))
    # Django rolls back after an exception in a view (ATOMIC_REQUESTS), even if the client gets a result.
    set_rollback()
    return result


class ViewToolParameters:
    """Parameters of a tool (`server.primitives.ToolParameters`)."""

    header_params: tuple[HeaderParam, ...] = ()

    def __init__(self, exposed: ExposedAction) -> None:
        self._exposed = exposed

    @property
    def schema(self) -> Schema:
        """Return the JSON Schema that clients see."""
        return self._exposed.get_listed_plan().parameters.schema

    def check(self, arguments: JSONObject) -> None:
        """Check that a request can be made of the arguments.

        Raises:
            ArgumentError: a name is unknown or a value cannot be encoded.
        """
        self._exposed.get_compiled_plan().parameters.check(arguments)

    def convert(self, arguments: JSONObject) -> JSONObject:
        """Return the arguments of the operation with decoded files.

        Raises:
            ArgumentError: a file is not valid base64.
        """
        compiled = self._exposed.get_compiled_plan()
        restored = compiled.layout.restore(arguments)
        with compiled.layout.translate_errors():
            return {"arguments": compiled.plan.decode_files(restored)}


@dataclass(kw_only=True, eq=False)
class ViewTool(Tool):
    """Tool with schemas that are read late."""

    exposed: ExposedAction
    compilation: PlanCompilation
    """Compilation of the plans of all tools in the same lists."""
    has_own_description: bool
    """True if `expose` was given a description."""

    def __post_init__(self) -> None:
        self.exposed.on_compiled = self._apply_compiled_plan

    def _apply_compiled_plan(self, compiled: CompiledPlan) -> None:
        self.handler.atomic = _get_atomic_databases(compiled.plan)
        if compiled.output is not None:
            self.output = compiled.output

    def _wire(self) -> JSONObject:
        if find_running_loop() is None:
            self.compilation.compile(self.exposed)
        elif not self.exposed.has_plan():
            run_off_loop(self.compilation.compile_all)
        compiled = self.exposed.get_listed_plan()  # also sets the output schema
        entry = super()._wire()
        if not self.has_own_description and compiled.plan.description:
            entry["description"] = compiled.plan.description
        return entry


def _describe_permission_class(permission: Any) -> str:
    """Return the name of an entry of `permission_classes`, such as "IsAuthenticated & IsOwner"."""
    operands = [getattr(permission, name) for name in ("op1_class", "op2_class") if hasattr(permission, name)]
    if not operands:
        return str(getattr(permission, "__name__", type(permission).__name__))
    symbol = {"AND": "&", "OR": "|", "NOT": "~"}.get(permission.operator_class.__name__, "?")
    described = [_describe_permission_class(operand) for operand in operands]
    return f"{symbol}{described[0]}" if len(described) == 1 else f"({f' {symbol} '.join(described)})"


def _get_atomic_databases(plan: RequestPlan) -> AtomicDatabases:
    """Return the databases with a transaction around the call, as in Django.

    These are the databases with ATOMIC_REQUESTS, except those on which the view or its route is declared non-atomic
    (`django.db.transaction.non_atomic_requests`).
    """
    routed = plan.callback if plan.route is None else plan.route.callback
    excluded = {name for view in (plan.callback, routed) for name in getattr(view, "_non_atomic_requests", ())}
    return tuple(name for name in conf.atomic_databases() if name not in excluded) if excluded else None


def run_off_loop(make: Callable[[], T]) -> T:
    """Call `make` on a thread that may query the database, for the choices of serializers.

    The event loop waits for it, once for a list.
    """
    return off_loop.run_off_loop(make, close=connections.close_all)


EXPOSED_ACTIONS: "WeakSet[ExposedAction]" = WeakSet()
"""Actions passed to `expose`."""


@register
def check_exposed_views(app_configs: Sequence[Any] | None, **kwargs: object) -> list[CheckMessage]:
    """Check the routes of exposed views.

    Each view needs one route, and calls must not bypass decorators around it.
    """
    messages: list[CheckMessage] = []
    for exposed in sorted(EXPOSED_ACTIONS, key=repr):
        try:
            resolve_route(exposed.action, exposed.options)
        except Exception as problem:
            text = str(problem) if isinstance(problem, ImproperlyConfigured) else f"{exposed!r} fails: {problem!r}"
            hint = "Until then its tool is not served."
            messages.append(Error(text, hint=hint, id="mcp_django.E020"))
    return messages
