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
from mcp_django.contrib.rest.actions import Action, Subject
from mcp_django.contrib.rest.plan import Plan, with_uploads
from mcp_django.contrib.rest.plan_builder import Wishes, make_plan
from mcp_django.contrib.rest.responses import refusal, result_of
from mcp_django.contrib.rest.schema.fields import Schema
from mcp_django.contrib.rest.views import pretend
from mcp_django.internal_request import close, make_request
from mcp_django.protocol.headers import HeaderParam
from mcp_django.schema import ArgumentError, DeclarationError, natively
from mcp_django.schema.custom_schema import check_schema
from mcp_django.schema.validation.validation import Checker
from mcp_django.server.context.context import Context
from mcp_django.server.injection.handler import Atomic
from mcp_django.server.primitives.base import Tool
from mcp_django.server.primitives.results import ToolResult

logger = logging.getLogger("mcp_django.rest")
T = TypeVar("T")
ANY: Schema = {"type": "object"}


class Exposed:
    """Exposed action with its options and its compiled plans."""

    def __init__(
        self,
        subject: Subject,
        action: Action,
        wishes: Wishes,
        *,
        kwargs: Mapping[str, Any] | None = None,
        host: str | None = None,
    ) -> None:
        self.subject, self.action, self.wishes = subject, action, wishes
        self._kwargs, self._host = dict(kwargs or {}), host
        self._compiled: dict[URLResolver, Compiled] = {}
        self._lock = threading.Lock()
        self._told: Callable[[Compiled], None] = lambda compiled: None

    def when_compiled(self, tell: "Callable[[Compiled], None]") -> None:
        """Set the callback for newly compiled plans.

        Plans are compiled by a list, or by the check of the first call's arguments.
        """
        self._told = tell

    def __repr__(self) -> str:
        return f"<{self.subject.name}.{self.action.name}>"

    def compiled(self) -> "Compiled":
        """Return the compiled plan for the active URLconf.

        Raises:
            ImproperlyConfigured: the options conflict with the route or the view.
        """
        resolver = get_resolver(get_urlconf())
        found = self._compiled.get(resolver)
        if found is None:
            with self._lock:
                found = self._compiled.get(resolver)
                if found is None:
                    found = off_loop(lambda: natively(self._compile))
                    self._told(found)
                    self._compiled[resolver] = found
        return found

    def shown(self) -> "Compiled | None":
        """Return the compiled plan, or log the problem and return None."""
        try:
            return self.compiled()
        except ImproperlyConfigured as problem:
            logger.error("Exposed action cannot be used: %r: %s", self, problem)
        except Exception:
            logger.exception("Exposed action cannot be used: %r", self)
        return None

    def admits(self, principal: Any) -> bool:
        """Return True if the view's permission classes accept the principal.

        No row is checked. A permission class that needs a real request and fails counts as a denial.
        """
        plan = self.compiled().plan
        actions: Mapping[str, str] = getattr(plan.callback, "actions", {})
        view, request = pretend(self.subject, self.action, actions, plan.callback.initkwargs, principal)  # type: ignore[attr-defined]
        try:
            view.check_permissions(request)
        except (APIException, PermissionDenied, Http404):
            return False
        return True

    def _compile(self) -> "Compiled":
        return Compiled(repr(self), make_plan(self.subject, self.action, self.wishes))

    def run(self, context: Context, arguments: dict[str, Any]) -> Any:
        """Send one request to the view and return its ToolResult.

        For an async view the result is awaitable.
        """
        compiled = self.compiled()
        plan = compiled.plan
        request: HttpRequest | None = None
        try:
            fixed = {name: value(context) if callable(value) else value for name, value in self._kwargs.items()}

            path, kwargs, match = plan.locate(arguments, fixed)
            request = make_request(
                context,
                plan.action.method,
                path,
                plan.query_of(arguments),
                plan.body_of(arguments),
                accept=plan.accept(arguments),
                host=self._host,
                match=match,
            )

            response = plan.callback(request, **kwargs)
            if inspect.isawaitable(response):
                return self._awaited(response, request, compiled, context)
            return result_of(response, request, wrapped=compiled.wrapped)
        except Exception as problem:
            return _refused(problem, request)

    async def _awaited(
        self, response: Awaitable[Any], request: HttpRequest, compiled: "Compiled", context: Context
    ) -> Any:
        executor = context.server.executor
        try:
            made = await response
            return await executor.run(functools.partial(result_of, made, request, wrapped=compiled.wrapped))
        except Exception as problem:
            return await executor.run(_refused, problem, request)


def _refused(problem: Exception, request: HttpRequest | None) -> ToolResult:
    """Convert an exception as Django does, or raise it again."""
    refused = refusal(problem)
    if request is not None:
        close(None, request)
    if refused is None:
        raise problem
    # Django rolls back after an exception in a view (ATOMIC_REQUESTS), even if the client gets a result.
    set_rollback()
    return refused


class Compiled:
    """Compiled plan with validated schemas."""

    def __init__(self, name: str, plan: Plan) -> None:
        self.plan, self._name = plan, name
        self.schema = _servable(plan.schema(), plan.gate(), name)
        self._gate = Checker(plan.gate())
        self.output, self.wrapped = _rooted(plan.answer)

        self._answers: Checker | None = None
        if self.output is not None:
            try:
                self._answers = check_schema(self.output, name)
            except DeclarationError as problem:
                logger.warning("Invalid output schema ignored: %s: %s", name, problem)
                self.output, self.wrapped = None, None
        self._told = False

    def check(self, arguments: dict[str, Any]) -> None:
        """Check that a request can be made of the arguments.

        Raises:
            ArgumentError: a name is unknown or a value cannot be encoded.
        """
        problems = "" if self._gate.is_valid(arguments) else self._gate.problems(arguments)
        if problems:
            raise ArgumentError(problems)

    def note(self, value: Any) -> None:
        """Log once if a response violates the output schema."""
        if self._told or self._answers is None or self._answers.is_valid(value):
            return
        self._told = True
        problems = self._answers.problems(value, "key")
        logger.warning("Response violates the output schema, see outputs=: %s: %s", self._name, problems)


def _servable(schema: Schema, gate: Schema, name: str) -> Schema:
    try:
        check_schema(schema, name)
    except DeclarationError as problem:
        logger.warning("Invalid input schema replaced by a simple one: %s: %s", name, problem)
        return gate
    return schema


def _rooted(answer: Schema | None) -> tuple[Schema | None, bool | None]:
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


class Arguments:
    """Parameters of a tool (`server.primitives.ToolParameters`)."""

    header_params: tuple[HeaderParam, ...] = ()

    def __init__(self, exposed: Exposed) -> None:
        self._exposed = exposed

    @property
    def schema(self) -> Schema:
        """Return the JSON Schema that clients see."""
        compiled = self._exposed.shown()
        return ANY if compiled is None else compiled.schema

    def check(self, arguments: dict[str, Any]) -> None:
        """Check that a request can be made of the arguments.

        Raises:
            ArgumentError: a name is unknown or a value cannot be encoded.
        """
        self._exposed.compiled().check(arguments)

    def convert(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments with decoded files.

        Raises:
            ArgumentError: a file is not valid base64.
        """
        return {"arguments": with_uploads(arguments, self._exposed.compiled().plan.files)}


class Answer:
    """Structured result of a tool: the unchanged response of the view.

    It implements `server.primitives.ToolOutput`.
    """

    def __init__(self, compiled: Compiled) -> None:
        self._compiled = compiled
        self.schema: Schema = compiled.output or ANY
        self.wrapped = bool(compiled.wrapped)

    def structured(self, value: Any) -> Any:
        """Return the view's response, which is wrapped in "result" already if necessary.

        A violation of the schema is logged, but the response is returned unchanged.
        """
        found = {} if value is None else value
        self._compiled.note(found)
        return found


@dataclass(kw_only=True, eq=False)
class ViewTool(Tool):
    """Tool with schemas that are read late."""

    exposed: Exposed
    is_described: bool
    """True if `expose` was given a description."""

    def __post_init__(self) -> None:
        self.exposed.when_compiled(self._answers)

    def _answers(self, compiled: Compiled) -> None:
        self.handler.atomic = _atomic(compiled.plan)
        if compiled.output is not None:
            self.output = Answer(compiled)

    def _wire(self) -> dict[str, Any]:
        compiled = self.exposed.shown()  # also sets the output schema
        entry = super()._wire()
        if not self.is_described and compiled is not None and compiled.plan.description:
            entry["description"] = compiled.plan.description
        return entry


def _atomic(plan: Plan) -> Atomic:
    """Return the databases with a transaction around the call, as in Django.

    These are the databases with ATOMIC_REQUESTS, except those on which the view or its route is declared non-atomic
    (`django.db.transaction.non_atomic_requests`).
    """
    routed = plan.callback if plan.route is None else plan.route.callback
    without = {name for view in (plan.callback, routed) for name in getattr(view, "_non_atomic_requests", ())}
    return tuple(name for name in conf.atomic_databases() if name not in without) if without else None


def off_loop(make: Callable[[], T]) -> T:
    """Call `make` on this thread, or on a new one if an event loop is running.

    The event loop waits for it, once for each tool. Lists are encoded on the loop, and serializers query the database
    for choices.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return make()
    found: list[T] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            found.append(make())
        except BaseException as problem:
            failed.append(problem)
        finally:
            connections.close_all()

    thread = threading.Thread(target=work, name="mcp-rest-plan")
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return found[0]
