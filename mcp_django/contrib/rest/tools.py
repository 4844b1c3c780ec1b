"""Tools of view actions, with schemas that are read late.

Input and output are read when a tool is first listed or called. By then serializers and routes are complete, which is
not the case while apps are loaded.
"""

import asyncio
import functools
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.db import connections
from django.http import Http404, HttpRequest
from django.urls import URLResolver, get_resolver, get_urlconf
from rest_framework.exceptions import APIException
from rest_framework.views import set_rollback

from mcp_django import conf
from mcp_django.contrib.http_tools.replies import build_exception_reply
from mcp_django.contrib.rest.actions import ExposedView, ViewAction
from mcp_django.contrib.rest.plan import RequestPlan, decode_uploads
from mcp_django.contrib.rest.plan_builder import ViewOptions, build_plan
from mcp_django.contrib.rest.responses import build_error_result, build_result
from mcp_django.contrib.rest.schema.fields import Schema
from mcp_django.contrib.rest.views import build_fake_view
from mcp_django.internal_request import build_request
from mcp_django.protocol.headers import HeaderParam
from mcp_django.schema import ArgumentError, DeclarationError, call_in_default_language
from mcp_django.schema.custom_schema import check_schema
from mcp_django.schema.validation.validation import SchemaChecker
from mcp_django.server.context.context import Context
from mcp_django.server.injection.handler import AtomicDatabases
from mcp_django.server.primitives.base import Tool
from mcp_django.server.primitives.results import ToolResult

logger = logging.getLogger("mcp_django.rest")
T = TypeVar("T")
ANY_OBJECT_SCHEMA: Schema = {"type": "object"}


class ExposedAction:
    """Exposed action with its options and its compiled plans."""

    def __init__(
        self,
        subject: ExposedView,
        action: ViewAction,
        options: ViewOptions,
        *,
        kwargs: Mapping[str, Any] | None = None,
        host: str | None = None,
    ) -> None:
        self.subject = subject
        self.action = action
        self.options = options
        self._kwargs = dict(kwargs or {})
        self._host = host
        self._compiled_plans: dict[URLResolver, CompiledPlan] = {}
        self._lock = threading.Lock()
        self._on_compiled: Callable[[CompiledPlan], None] = lambda compiled: None

    def on_compiled(self, callback: "Callable[[CompiledPlan], None]") -> None:
        """Set the callback for newly compiled plans.

        Plans are compiled by a list, or by the check of the first call's arguments.
        """
        self._on_compiled = callback

    def __repr__(self) -> str:
        return f"<{self.subject.name}.{self.action.name}>"

    def get_compiled_plan(self) -> "CompiledPlan":
        """Return the compiled plan for the active URLconf.

        Raises:
            ImproperlyConfigured: the options conflict with the route or the view.
        """
        resolver = get_resolver(get_urlconf())
        found = self._compiled_plans.get(resolver)
        if found is None:
            with self._lock:
                found = self._compiled_plans.get(resolver)
                if found is None:
                    found = run_off_loop(lambda: call_in_default_language(self._compile))
                    self._on_compiled(found)
                    self._compiled_plans[resolver] = found
        return found

    def find_compiled_plan(self) -> "CompiledPlan | None":
        """Return the compiled plan, or log the problem and return None."""
        try:
            return self.get_compiled_plan()
        except ImproperlyConfigured as problem:
            logger.error("Exposed action cannot be used: %r: %s", self, problem)
        except Exception:
            logger.exception("Exposed action cannot be used: %r", self)
        return None

    def is_permitted(self, principal: Any) -> bool:
        """Return True if the view's permission classes accept the principal.

        No row is checked. A permission class that needs a real request and fails counts as a denial.
        """
        plan = self.get_compiled_plan().plan
        actions: Mapping[str, str] = getattr(plan.callback, "actions", {})
        view, request = build_fake_view(self.subject, self.action, actions, plan.callback.initkwargs, principal)  # type: ignore[attr-defined]
        try:
            view.check_permissions(request)
        except (APIException, PermissionDenied, Http404):
            return False
        return True

    def _compile(self) -> "CompiledPlan":
        return CompiledPlan(repr(self), build_plan(self.subject, self.action, self.options))

    def run(self, context: Context, arguments: dict[str, Any]) -> Any:
        """Send one request to the view and return its ToolResult.

        For an async view the result is awaitable.
        """
        compiled = self.get_compiled_plan()
        plan = compiled.plan
        request: HttpRequest | None = None
        try:
            fixed = {name: value(context) if callable(value) else value for name, value in self._kwargs.items()}

            path, kwargs, match = plan.resolve_path(arguments, fixed)
            request = build_request(
                context,
                plan.action.method,
                path,
                plan.build_query(arguments),
                plan.build_body(arguments),
                accept=plan.build_accept_header(arguments),
                host=self._host,
                match=match,
            )

            response = plan.callback(request, **kwargs)
            if inspect.isawaitable(response):
                return self._await_response(response, request, compiled, context)
            return build_result(response, request, wrapped=compiled.wrapped)
        except Exception as problem:
            return _handle_exception(problem, request)

    async def _await_response(
        self, response: Awaitable[Any], request: HttpRequest, compiled: "CompiledPlan", context: Context
    ) -> Any:
        executor = context.server.executor
        try:
            awaited_response = await response
            return await executor.run(
                functools.partial(build_result, awaited_response, request, wrapped=compiled.wrapped)
            )
        except Exception as problem:
            return await executor.run(_handle_exception, problem, request)


def _handle_exception(problem: Exception, request: HttpRequest | None) -> ToolResult:
    """Convert an exception as Django does, or raise it again."""
    result = build_error_result(build_exception_reply(problem, request))
    # Django rolls back after an exception in a view (ATOMIC_REQUESTS), even if the client gets a result.
    set_rollback()
    return result


class CompiledPlan:
    """Compiled plan with validated schemas."""

    def __init__(self, name: str, plan: RequestPlan) -> None:
        self.plan = plan
        self._name = name
        self.schema = _get_servable_schema(plan.build_schema(), plan.build_gate_schema(), name)
        self._argument_checker = SchemaChecker(plan.build_gate_schema())
        self.output, self.wrapped = _wrap_schema(plan.response_schema)

        self._response_checker: SchemaChecker | None = None
        if self.output is not None:
            try:
                self._response_checker = check_schema(self.output, name)
            except DeclarationError as problem:
                logger.warning("Invalid output schema ignored: %s: %s", name, problem)
                self.output = None
                self.wrapped = None
        self._is_mismatch_logged = False

    def check(self, arguments: dict[str, Any]) -> None:
        """Check that a request can be made of the arguments.

        Raises:
            ArgumentError: a name is unknown or a value cannot be encoded.
        """
        problems = (
            "" if self._argument_checker.is_valid(arguments) else self._argument_checker.describe_problems(arguments)
        )
        if problems:
            raise ArgumentError(problems)

    def log_mismatch(self, value: Any) -> None:
        """Log once if a response violates the output schema."""
        if self._is_mismatch_logged or self._response_checker is None or self._response_checker.is_valid(value):
            return
        self._is_mismatch_logged = True
        problems = self._response_checker.describe_problems(value, "key")
        logger.warning("Response violates the output schema, see outputs=: %s: %s", self._name, problems)


def _get_servable_schema(schema: Schema, gate: Schema, name: str) -> Schema:
    try:
        check_schema(schema, name)
    except DeclarationError as problem:
        logger.warning("Invalid input schema replaced by a simple one: %s: %s", name, problem)
        return gate
    return schema


def _wrap_schema(answer: Schema | None) -> tuple[Schema | None, bool | None]:
    """Return the schema as an object, and True if it was wrapped.

    Both are None without a schema.
    """
    if not answer:
        return None, None
    if answer.get("type") == "object":
        return answer, False
    inner = {key: value for key, value in answer.items() if key != "$defs"}
    schema: Schema = {"type": "object", "properties": {"result": inner}, "required": ["result"]}
    return ({**schema, "$defs": answer["$defs"]} if "$defs" in answer else schema), True


class ViewToolParameters:
    """Parameters of a tool (`server.primitives.ToolParameters`)."""

    header_params: tuple[HeaderParam, ...] = ()

    def __init__(self, exposed: ExposedAction) -> None:
        self._exposed = exposed

    @property
    def schema(self) -> Schema:
        """Return the JSON Schema that clients see."""
        compiled = self._exposed.find_compiled_plan()
        return ANY_OBJECT_SCHEMA if compiled is None else compiled.schema

    def check(self, arguments: dict[str, Any]) -> None:
        """Check that a request can be made of the arguments.

        Raises:
            ArgumentError: a name is unknown or a value cannot be encoded.
        """
        self._exposed.get_compiled_plan().check(arguments)

    def convert(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments with decoded files.

        Raises:
            ArgumentError: a file is not valid base64.
        """
        return {"arguments": decode_uploads(arguments, self._exposed.get_compiled_plan().plan.files)}


class ViewToolOutput:
    """Structured result of a tool: the unchanged response of the view.

    It implements `server.primitives.ToolOutput`.
    """

    def __init__(self, compiled: CompiledPlan) -> None:
        self._compiled = compiled
        self.schema: Schema = compiled.output or ANY_OBJECT_SCHEMA
        self.is_wrapped = bool(compiled.wrapped)

    def to_structured(self, value: Any) -> Any:
        """Return the view's response, which is wrapped in "result" already if necessary.

        A violation of the schema is logged, but the response is returned unchanged.
        """
        found = {} if value is None else value
        self._compiled.log_mismatch(found)
        return found


@dataclass(kw_only=True, eq=False)
class ViewTool(Tool):
    """Tool with schemas that are read late."""

    exposed: ExposedAction
    has_own_description: bool
    """True if `expose` was given a description."""

    def __post_init__(self) -> None:
        self.exposed.on_compiled(self._apply_compiled_plan)

    def _apply_compiled_plan(self, compiled: CompiledPlan) -> None:
        self.handler.atomic = _get_atomic_databases(compiled.plan)
        if compiled.output is not None:
            self.output = ViewToolOutput(compiled)

    def _wire(self) -> dict[str, Any]:
        compiled = self.exposed.find_compiled_plan()  # also sets the output schema
        entry = super()._wire()
        if not self.has_own_description and compiled is not None and compiled.plan.description:
            entry["description"] = compiled.plan.description
        return entry


def _get_atomic_databases(plan: RequestPlan) -> AtomicDatabases:
    """Return the databases with a transaction around the call, as in Django.

    These are the databases with ATOMIC_REQUESTS, except those on which the view or its route is declared non-atomic
    (`django.db.transaction.non_atomic_requests`).
    """
    routed = plan.callback if plan.route is None else plan.route.callback
    excluded = {name for view in (plan.callback, routed) for name in getattr(view, "_non_atomic_requests", ())}
    return tuple(name for name in conf.atomic_databases() if name not in excluded) if excluded else None


def run_off_loop(make: Callable[[], T]) -> T:
    """Call `make` on this thread, or on a new one if an event loop is running.

    The event loop waits for it, once for each tool. Lists are encoded on the loop, and serializers query the database
    for choices.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return make()
    results: list[T] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(make())
        except BaseException as problem:
            errors.append(problem)
        finally:
            connections.close_all()

    thread = threading.Thread(target=work, name="mcp-rest-plan")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
