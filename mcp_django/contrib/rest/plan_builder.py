"""Builder of request plans from views, serializers, filters and routes."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from django.core.exceptions import ImproperlyConfigured
from rest_framework import serializers
from rest_framework.request import Request

from mcp_django.contrib.rest.actions import Action, Subject
from mcp_django.contrib.rest.openapi import Operation, operation_of
from mcp_django.contrib.rest.plan import Plan, media_types_of
from mcp_django.contrib.rest.requests.pagination import page_answer, page_size_parameter
from mcp_django.contrib.rest.requests.query_params import Parameter, parameters_of
from mcp_django.contrib.rest.requests.request_body import JSON, BodyWriter
from mcp_django.contrib.rest.requests.versioning import version_of
from mcp_django.contrib.rest.routes import Route, find_route, foreign_decorators
from mcp_django.contrib.rest.schema.fields import FILE, Schema, column_schema
from mcp_django.contrib.rest.schema.serializers import answer_of, body_of
from mcp_django.contrib.rest.views import actions_of_view, initkwargs_of, make_callback, pretend

logger = logging.getLogger("mcp_django.rest")
T = TypeVar("T")
UNSAID: Any = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """Options of `expose` for one action."""

    route: str = ""
    lookup: str = ""
    fixed: frozenset[str] = frozenset()
    """Captured path arguments that are set by the project, not by callers."""
    version: str | None = None
    page_size: int | None = None
    input: Any = UNSAID
    output: Any = UNSAID
    parameters: Mapping[str, Schema] = field(default_factory=dict)
    decorated: bool = False


def make_plan(subject: Subject, action: Action, wishes: Wishes) -> Plan:
    """Compile the request plan of an action.

    Raises:
        ImproperlyConfigured: the options of `expose` conflict with the route or the view.
    """
    route, callback = routed(subject, action, wishes)
    initkwargs = initkwargs_of(subject, action, route)
    actions = actions_of_view(subject, action, route)
    view, request = pretend(subject, action, actions, initkwargs)
    operation = operation_of(view, action.function, _openapi_path(route, subject, action), action.method)

    serializer = _serializer(view, action)
    parsers = _read(view, "parsers", view.get_parsers, [parser() for parser in view.parser_classes])
    anything: Schema | None = {}
    body = _read(view, "input", lambda: _body(parsers, action, serializer, operation, wishes), anything)

    version = version_of(view, wishes.version)
    path = _path(subject, action, route, wishes, version.param if version.place == "path" else "")
    schemas = {argument: _path_schema(view, name, route, subject) for argument, name in path.items()}

    nothing: dict[str, Parameter] = {}
    query = _read(view, "filters", lambda: _query(view, request, action, operation), nothing)
    query |= {name: Parameter(name, dict(schema)) for name, schema in wishes.parameters.items()}
    own = {*path, *([version.param] if version.place else [])}
    query = {name: one for name, one in query.items() if name not in own}
    taken = {*path, *query, *([version.param] if version.is_asked else [])}

    return Plan(
        subject=subject,
        action=action,
        route=route,
        callback=callback,
        path=path,
        path_schemas=schemas,
        query=query,
        version=version,
        body=body,
        is_flat=_is_flat(body, taken),
        writer=BodyWriter(parsers, _fields(serializer)),
        media_types=_read(view, "renderers", lambda: media_types_of(view.get_renderers()), (JSON,)),
        answer=_read(view, "output", lambda: _answer(view, action, serializer, operation, wishes), None),
        description=operation.description if operation is not None else "",
        defaults=_defaults(view, action, wishes),
    )


def routed(subject: Subject, action: Action, wishes: Wishes) -> tuple[Route | None, Callable[..., Any]]:
    """Return the route of an action and the view for its calls.

    Raises:
        ImproperlyConfigured: as for `build_plan`.
    """
    route = find_route(subject, action, wishes.route)
    actions = actions_of_view(subject, action, route)
    callback = make_callback(subject, actions, initkwargs_of(subject, action, route))
    _refuse_decorated(subject, action, route, callback, wishes)
    return route, callback


def _refuse_decorated(subject: Subject, action: Action, route: Route | None, callback: Any, wishes: Wishes) -> None:
    if wishes.decorated:
        return
    for routed in (subject.callback, None if route is None else route.callback):
        found = [] if routed is None else foreign_decorators(routed, callback)
        if found:
            raise ImproperlyConfigured(
                f"{subject.name}.{action.name} is decorated with {', '.join(found)} where it is routed, and calls "
                "would bypass that; decorate the class with method_decorator, or set decorated=True"
            )


def _openapi_path(route: Route | None, subject: Subject, action: Action) -> str:
    names = list(route.arguments) if route is not None else ["id"] if action.detail else []
    return "/".join(["", subject.cls.__name__, *(f"{{{name}}}" for name in names), ""])


def _path(subject: Subject, action: Action, route: Route | None, wishes: Wishes, version_param: str) -> dict[str, str]:
    """Return a mapping of arguments to names in the path, without the version."""
    own = _lookup_kwarg(subject)
    if route is not None:
        names = list(route.arguments)
    else:
        generic = action.key in ("retrieve", "update", "partial_update", "destroy")
        names = [own] if action.detail or (action.detail is None and generic) else []
    left = [name for name in names if name not in wishes.fixed and name != version_param]
    return {wishes.lookup if wishes.lookup and name == own else name: name for name in left}


def _lookup_kwarg(subject: Subject) -> str:
    cls, given = subject.cls, subject.initkwargs
    field = given.get("lookup_field", getattr(cls, "lookup_field", None)) or "pk"
    return str(given.get("lookup_url_kwarg", getattr(cls, "lookup_url_kwarg", None)) or field)


def _path_schema(view: Any, name: str, route: Route | None, subject: Subject) -> Schema:
    known = dict(route.arguments.get(name, {})) if route is not None else {}
    if name == _lookup_kwarg(subject) and subject.model is not None:
        model = subject.model
        column = model._meta.pk
        lookup = getattr(view, "lookup_field", "pk")
        if lookup not in ("pk", "id"):
            column = next((f for f in model._meta.get_fields() if f.name == lookup and hasattr(f, "column")), None)
        known = known or ({} if column is None else column_schema(column))
        label = "Primary key" if lookup in ("pk", "id") else str(lookup)
        return {**(known or {"type": "string"}), "description": f"{label} of the {model._meta.verbose_name}"}
    return known or {"type": "string"}


def _read(view: Any, what: str, read: Callable[[], T], otherwise: T) -> T:
    """Read a property of a view outside a request, or return a default if that fails."""
    try:
        return read()
    except Exception:
        logger.warning(
            "View property unavailable outside a request: %s, %s", type(view).__qualname__, what, exc_info=True
        )
        return otherwise


def _query(view: Any, request: Request, action: Action, operation: Operation | None) -> dict[str, Parameter]:
    if operation is not None:
        return dict(operation.query)
    if action.is_reading and (action.key == "list" or (action.is_extra and action.detail is False)):
        return parameters_of(view, request)
    return {}


def _serializer(view: Any, action: Action) -> Any:
    """Return the serializer of an action, or None if it is not certain.

    An extra action of the project may not use the view's serializer. It does if `@action` sets one, or if
    `get_serializer_class` returns another class than for an unknown action.
    """
    make = getattr(view, "get_serializer", None)
    if make is None:
        return None
    try:
        if action.is_extra and "serializer_class" not in action.kwargs and not _has_own(view, action):
            return None
        return make(partial=True) if action.method == "patch" else make()
    except Exception:
        return None  # it needs a real request; errors will come from the view


def _has_own(view: Any, action: Action) -> bool:
    chosen = view.get_serializer_class()
    view.action = "an action that no view has"
    try:
        return chosen is not view.get_serializer_class()
    except Exception:
        return True
    finally:
        view.action = action.name


def _body(
    parsers: list[Any], action: Action, serializer: Any, operation: Operation | None, wishes: Wishes
) -> Schema | None:
    if wishes.input is not UNSAID:
        return _told(wishes.input, body_of)

    if action.method not in ("post", "put", "patch"):
        return None
    if operation is not None and (not action.is_extra or _is_described(action)):
        return operation.body
    if serializer is not None:
        return body_of(serializer)
    if BodyWriter(parsers, {}).is_file:
        return {"type": "object", "properties": {"file": dict(FILE)}, "required": ["file"]}
    return {}


def _answer(view: Any, action: Action, serializer: Any, operation: Operation | None, wishes: Wishes) -> Schema | None:
    if wishes.output is not UNSAID:
        return _told(wishes.output, answer_of)

    if operation is not None and (action.is_stock or _is_described(action)):
        return operation.answer
    if serializer is None or not action.is_stock or action.method == "delete":
        return None

    is_many = isinstance(serializer, serializers.ListSerializer) and action.key == "list"
    one = answer_of(serializer.child if is_many else serializer)
    return page_answer(view, one, wishes.page_size) if action.key == "list" else one or None


def _is_described(action: Action) -> bool:
    """Return True if the project described the action with `@extend_schema`."""
    return "schema" in action.kwargs or "schema" in getattr(action.function, "kwargs", {})


def _told(told: Any, read: Any) -> Schema | None:
    """Return the schema of an option of `expose`.

    The option is a JSON Schema, a serializer class or instance, or None.
    """
    if told is None or isinstance(told, dict):
        return told
    if isinstance(told, type) and issubclass(told, serializers.BaseSerializer):
        told = told()
    found: Schema = read(told)
    return found


def _fields(serializer: Any) -> Mapping[str, Any]:
    return getattr(serializer, "fields", {}) if isinstance(serializer, serializers.Serializer) else {}


def _is_flat(body: Schema | None, taken: set[str]) -> bool:
    if body is None or body.get("type") != "object" or body.get("additionalProperties"):
        return False
    properties = body.get("properties")
    return isinstance(properties, dict) and bool(properties) and not properties.keys() & taken


def _defaults(view: Any, action: Action, wishes: Wishes) -> dict[str, str]:
    if wishes.page_size is None or action.key != "list":
        return {}
    name = page_size_parameter(view)
    if name is None:
        raise ImproperlyConfigured(
            f"{type(view).__name__}: page_size= needs a paginator with a parameter for it (page_size_query_param, or "
            "LimitOffsetPagination)"
        )
    return {name: str(wishes.page_size)}
