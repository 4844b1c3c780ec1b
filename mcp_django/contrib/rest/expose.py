"""`expose`: make tools of views of Django REST framework."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypedDict, TypeVar, Unpack, overload

from mcp_django.contrib.http_tools.generic import OperationStyle, check_style, get_server_catalog
from mcp_django.contrib.http_tools.operation_search import CatalogEntry
from mcp_django.contrib.http_tools.tools import build_method_annotations, build_operation_tool
from mcp_django.contrib.rest.actions import (
    ExposedView,
    ViewAction,
    get_default_prefix,
    get_view_name,
    list_actions,
    select_actions,
)
from mcp_django.contrib.rest.compilation import PlanCompilation, get_compilation
from mcp_django.contrib.rest.plan_builder import UNSET, ViewOptions
from mcp_django.contrib.rest.requests.preparation import Prepare, load_prepare
from mcp_django.contrib.rest.tools import EXPOSED_ACTIONS, ExposedAction, ViewTool, ViewToolParameters
from mcp_django.extensions.calls import Context, Server
from mcp_django.extensions.errors import DeclarationError
from mcp_django.extensions.primitives import (
    Permission,
    Registry,
    Tool,
    check_option_names,
    combine_permissions,
    get_registry,
)
from mcp_django.extensions.schemas import JSONMapping, JSONObject, call_in_default_language
from mcp_django.types import Icon

V = TypeVar("V")


class ViewExposeOptions(TypedDict, total=False):
    """Options of `expose` for any number of views; mappings are by action."""

    descriptions: Mapping[str, str]
    lookup: str
    inputs: JSONMapping
    outputs: JSONMapping
    parameters: Mapping[str, Mapping[str, JSONObject]]
    page_size: int
    kwargs: JSONMapping
    version: str
    host: str
    decorated: bool
    prepare: Prepare | str | None
    hide_denied: bool
    style: OperationStyle
    permission: Permission | Mapping[str, Permission]
    scopes: Sequence[str] | Mapping[str, Sequence[str]]
    icons: Sequence[Icon]
    tags: Sequence[str]
    meta: JSONMapping
    metadata: JSONMapping
    timeout: float | None
    guards: Sequence[Callable[..., Any]]
    interceptors: Sequence[Callable[..., Any]]
    exception_handlers: Mapping[type[Exception], Callable[..., Any]]


class ExposeOptions(ViewExposeOptions, total=False):
    """Options of `expose`."""

    actions: Sequence[str] | Literal["__all__"]
    prefix: str
    names: Mapping[str, str]
    route: str


_TOOL_OPTIONS = ("icons", "tags", "meta", "metadata", "timeout", "guards", "interceptors", "exception_handlers")
_MAPPING_OPTIONS = ("names", "descriptions", "inputs", "outputs", "parameters")
OPTIONS_BY_ACTION = (*_MAPPING_OPTIONS, "permission", "scopes")
"""Options that are, or may be, mappings by action."""


@overload
def expose(view: V, *, server: str | Server = "default", **options: Unpack[ExposeOptions]) -> V: ...
@overload
def expose(
    view: None = None, *, server: str | Server = "default", **options: Unpack[ExposeOptions]
) -> Callable[[V], V]: ...
def expose(view: object = None, *, server: str | Server = "default", **options: Unpack[ExposeOptions]) -> Any:
    """Make tools of a view.

        expose(BookViewSet)

        @expose(actions=["list", "publish"])
        class BookViewSet(ModelViewSet): ...

    `view` is a viewset or APIView class, a function of `@api_view`, or the result of `as_view()`. It is returned
    unchanged. A call of a tool is a request to the view. It is authenticated as the call's principal. Then the view's
    own permissions, throttles, parsers, filters, pagination, versioning and exception handler apply.

    `actions` selects the actions to expose. The default is list and retrieve (the GET method of other views). "__all__"
    selects all. A tool is called `<model>_<action>`. `prefix` replaces the part before the action, `names` the whole
    name.

    `lookup` is the name of the argument that selects a row. `inputs` and `outputs` declare the input and output of an
    action if its serializer does not. Their values are a serializer, a JSON Schema, or None for nothing. `parameters`
    adds query parameters to an action, by name with their schemas. `page_size` is the default size of a page.

    `route` selects one of several routes, by its name, basename or namespace. `kwargs` fills in captured path
    arguments, with values or functions of the Context. `version` is the API version of all calls, `host` the host name
    in links. `decorated` accepts that decorators around the routed view do not run for calls.

    `prepare` is a function of the view's request, or its dotted path. It replaces the part of MIDDLEWARE or of
    a router's decorator that the view needs, and runs before the view, and before its schemas are read. A context
    manager that it returns surrounds the view.

    `permission` and `scopes` are checked before the view's own permissions, and may be given by action. `hide_denied`
    hides a tool from callers that the view's permission classes reject before they see a row. All other options are as
    for `@tool`.

    `style="generic"` makes no tool of an action. Four tools of the server find, describe and run all actions that are
    exposed this way: `api_search`, `api_describe`, `api_read` and `api_call`.
    """

    def decorate(found: object) -> Any:
        registry = server.registry if isinstance(server, Server) else get_registry(server)
        register_view(registry, found, options)
        return found

    return decorate if view is None else decorate(view)


def register_view(registry: Registry, view: object, options: ExposeOptions) -> None:
    """Register the tools; invalid options become one problem of the registry."""
    with registry.collect_errors(f"{getattr(view, '__module__', '?')}.{getattr(view, '__qualname__', view)}"):
        subject = ExposedView.from_view(view)
        _check_options(subject, options)
        chosen = select_actions(subject, options.get("actions"))
        _check_action_options(subject, options, chosen)

        compilation = get_compilation(registry)
        for action in chosen:
            name = _get_for_action(action, options.get("names"), None)
            name = name or _build_tool_name(action, options.get("prefix"))
            build = partial(_build_tool, action, options, compilation)
            source = f"{subject.name}.{action.name}"
            if options.get("style") == "generic":
                _add_to_catalog(registry, build, action, source, name)
            else:
                registry.add(build, source, name)


def _add_to_catalog(registry: Registry, build: Callable[[], Tool], action: ViewAction, source: str, name: str) -> None:
    """Add the tool of an action to those that the generic tools of the server run."""
    with registry.collect_errors(source, (name,)):
        tool = call_in_default_language(build)
        get_server_catalog(registry).add(CatalogEntry(tool, action.method, ""))


def _check_options(subject: ExposedView, options: ExposeOptions) -> None:
    check_option_names(subject.name, options, ExposeOptions)
    size: Any = options.get("page_size", 1)
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise DeclarationError(f"{subject.name}: page_size={size!r} is invalid; give an integer above 0")
    check_style(options.get("style", "per_operation"), subject.name)
    load_prepare(options.get("prepare"), subject.name)


def _check_action_options(subject: ExposedView, options: ExposeOptions, chosen: Sequence[ViewAction]) -> None:
    """Check that options by action are mappings, and name exposed actions."""
    keys = {key for action in chosen for key in (action.key, action.name)}
    for option in OPTIONS_BY_ACTION:
        by_action: Any = options.get(option)
        if option in _MAPPING_OPTIONS and not isinstance({} if option not in options else by_action, Mapping):
            raise DeclarationError(f"{subject.name}: {option} is a mapping by action, such as {option}={{'list': …}}")
        for name in by_action if isinstance(by_action, Mapping) else ():
            if name not in keys:
                why = "is not exposed" if name in list_actions(subject) else "is not an action of it"
                raise DeclarationError(f"{subject.name}: {option} names {name!r}, which {why}")


def _build_tool(action: ViewAction, options: ExposeOptions, compilation: PlanCompilation) -> Tool:
    exposed = ExposedAction(
        action, _build_view_options(action, options), dict(options.get("kwargs") or {}), options.get("host")
    )
    EXPOSED_ACTIONS.add(exposed)
    compilation.add(exposed)
    description = _get_for_action(action, options.get("descriptions"), None)

    def handle(context: Context, arguments: JSONObject) -> Any:
        return exposed.run(context, arguments)

    tool_options: Any = {name: value for name, value in options.items() if name in _TOOL_OPTIONS}
    for name in ("permission", "scopes"):
        wanted: Any = options.get(name)
        wanted = _get_for_action(action, wanted, None) if isinstance(wanted, Mapping) else wanted
        if wanted is not None:
            tool_options[name] = wanted
    if options.get("hide_denied"):
        tool_options["permission"] = combine_permissions(tool_options.get("permission"), exposed.is_permitted)

    tool = build_operation_tool(
        handle,
        _get_for_action(action, options.get("names"), None) or _build_tool_name(action, options.get("prefix")),
        source=f"{action.subject.name}.{action.name}",
        parameters=ViewToolParameters(exposed),
        description=description or _build_description(action),
        annotations=build_method_annotations(action.method, creates=action.key == "create"),
        tool_class=partial(
            ViewTool, exposed=exposed, compilation=compilation, has_own_description=description is not None
        ),
        **tool_options,
    )
    tool.call_checks = exposed.build_call_checks()
    return tool


def _build_view_options(action: ViewAction, options: ExposeOptions) -> ViewOptions:
    return ViewOptions(
        route=options.get("route", ""),
        lookup=options.get("lookup", ""),
        fixed_kwargs=frozenset(options.get("kwargs", ())),
        version=options.get("version"),
        page_size=options.get("page_size"),
        input=_get_for_action(action, options.get("inputs"), UNSET),
        output=_get_for_action(action, options.get("outputs"), UNSET),
        parameters=_get_for_action(action, options.get("parameters"), {}),
        decorated=options.get("decorated", False),
        prepare=load_prepare(options.get("prepare"), action.subject.name),
    )


def _get_for_action(action: ViewAction, by_action: JSONMapping | None, default: object) -> Any:
    """Return an action's value in a mapping by key or name."""
    values = by_action or {}
    return values[action.key] if action.key in values else values.get(action.name, default)


def _build_tool_name(action: ViewAction, prefix: str | None) -> str:
    subject = action.subject
    everything = list(list_actions(subject).values())
    if prefix is None and not subject.is_viewset and len(everything) == 1 and action.key == action.method:
        return get_view_name(subject)  # a view with a single action needs no suffix
    return f"{get_default_prefix(subject, everything) if prefix is None else prefix}{action.key}"


def _build_description(action: ViewAction) -> str:
    """Return the project's description of an action, or a generated one."""
    subject = action.subject
    docstring = (
        None
        if action.is_drf_method
        else (action.kwargs.get("description") or getattr(action.function, "__doc__", None))
    )
    if docstring is None and not subject.is_viewset and action.key == action.method:
        docstring = subject.cls.__doc__

    if docstring:
        return _strip_lines(str(docstring))

    model = subject.model
    one = str(model._meta.verbose_name) if model is not None else get_view_name(subject).replace("_", " ")
    many = str(model._meta.verbose_name_plural) if model is not None else f"{one} rows"
    view_summary = _strip_lines(str(vars(subject.cls).get("__doc__") or "")).partition("\n\n")[0]
    summary = {
        "list": f"List {many}.",
        "create": f"Create a {one}.",
        "retrieve": f"Get one {one}.",
        "update": f"Replace a {one}: every field is set.",
        "partial_update": f"Change a {one}: fields left out stay as they are.",
        "destroy": f"Delete a {one}.",
    }.get(action.key, f"{action.key.replace('_', ' ').capitalize()}: {one}.")

    return f"{summary} {view_summary}" if view_summary else summary


def _strip_lines(text: str) -> str:
    lines = [line.strip() for line in text.strip().splitlines()]
    return "\n".join(lines)
