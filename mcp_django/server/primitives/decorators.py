"""`@tool`, `@resource`, `@prompt`, `@completion`: functions become primitives; the functions themselves stay as they
are.

The decorators of this module add to the registry of an alias (`server="default"`), those of a `Server` or `Toolset`
to its own. Everything that is wrong with a declaration is found here: a name that clients refuse, a type without a
schema, a header annotation in the wrong place, a taken name.
"""

import difflib
import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict, TypeVar, Unpack, cast, get_origin, get_type_hints, overload

from mcp_django.protocol.content import is_content_type
from mcp_django.protocol.meta import is_valid_key
from mcp_django.protocol.types import Annotations, Icon, ToolAnnotations
from mcp_django.protocol.uri import UriTemplate
from mcp_django.schema import (
    DeclarationError,
    describe,
    output_of,
    parameters_of,
    prompt_parameters_of,
    uri_parameters_of,
)
from mcp_django.server.injection.handler import Atomic, Handler, source_of
from mcp_django.server.injection.parameters import injected_parameters, is_injected
from mcp_django.server.primitives.base import (
    Completer,
    Permission,
    Primitive,
    Prompt,
    Resource,
    ResourceTemplate,
    ScopesFor,
    Tool,
)
from mcp_django.server.primitives.hooks import declared_hooks
from mcp_django.server.primitives.registry import METHODS, Registry, registry_for
from mcp_django.server.primitives.results import ToolResult
from mcp_django.server.primitives.streaming import ToolStream
from mcp_django.server.rates import Rate

F = TypeVar("F", bound=Callable[..., Any])
Build = Callable[[Any], Primitive | Completer]
_MARK = "__mcp_declarations__"
NAME = re.compile(r"[A-Za-z0-9_.\-]{1,64}")
"""server/tools allows 128 characters; clients that check allow 64."""


class PrimitiveOptions(TypedDict, total=False):
    """What every primitive takes."""

    title: str
    description: str
    icons: Sequence[Icon]
    tags: Sequence[str]
    meta: Mapping[str, Any]
    permission: Permission
    scopes: Sequence[str]
    timeout: float | None
    atomic: bool | str | Sequence[str] | None
    metadata: Mapping[str, Any]
    guards: Sequence[Callable[..., Any]]
    interceptors: Sequence[Callable[..., Any]]
    exception_handlers: Mapping[type[Exception], Callable[..., Any]]


class ToolOptions(PrimitiveOptions, total=False):
    """What `@tool` takes beyond a name."""

    annotations: ToolAnnotations | Mapping[str, Any]
    input_schema: dict[str, Any]
    output_schema: Any
    single_use_state: bool
    scopes_for: ScopesFor
    rate: str


class ResourceOptions(PrimitiveOptions, total=False):
    """What `@resource` takes beyond a URI."""

    name: str
    mime_type: str
    size: int
    annotations: Annotations
    probe: bool


def build_tool(fn: Callable[..., Any], name: str | None = None, **options: Unpack[ToolOptions]) -> Tool:
    """Compile a function to a Tool. Raises DeclarationError."""
    name = _name(fn, name)
    said = describe(fn)
    parameters = parameters_of(fn, is_injected=is_injected, input_schema=options.get("input_schema"))
    output = output_of(fn, output_schema=options.get("output_schema"), is_content=_is_content)
    return Tool(
        **_common(fn, options, ToolOptions),
        name=name,
        description=_description(options, said.summary, name),
        handler=Handler(fn, parameters.injected, atomic=atomic_of(fn, options.get("atomic"))),
        source=source_of(fn),
        parameters=parameters,
        output=output,
        annotations=ToolAnnotations.of(options.get("annotations")),
        single_use_state=bool(options.get("single_use_state", False)),
        scopes_for=_scopes_for(fn, options.get("scopes_for")),
        rate=rate_of(fn, options.get("rate")),
    )


def build_resource(fn: Callable[..., Any], uri: str, **options: Unpack[ResourceOptions]) -> Resource | ResourceTemplate:
    """Compile a function to a Resource, or to a ResourceTemplate when `uri` has variables. Raises DeclarationError."""
    try:
        template = UriTemplate(uri)
    except ValueError as problem:
        raise DeclarationError(f"{source_of(fn)}: {problem}") from None
    if not re.match(r"[A-Za-z][A-Za-z0-9+.\-]*:", uri):
        raise DeclarationError(f"{source_of(fn)}: {uri!r} has no scheme; write it like 'airport://{{code}}'")
    said = describe(fn)
    parameters = uri_parameters_of(fn, template.variables, is_injected=is_injected)
    name = options.get("name") or str(getattr(fn, "__name__", uri))
    common = {
        **_common(fn, options, ResourceOptions),
        "name": name,
        "description": _description(options, said.summary, name),
        "handler": Handler(fn, parameters.injected, atomic=atomic_of(fn, options.get("atomic"))),
        "source": source_of(fn),
        "mime_type": options.get("mime_type"),
        "annotations": options.get("annotations"),
        "probe": bool(options.get("probe", False)),
    }
    if template.is_static:
        return Resource(**common, uri=uri, size=options.get("size"))
    return ResourceTemplate(**common, template=template, convert=parameters.convert)


def build_prompt(fn: Callable[..., Any], name: str | None = None, **options: Unpack[PrimitiveOptions]) -> Prompt:
    """Compile a function to a Prompt. Raises DeclarationError."""
    name = _name(fn, name)
    parameters = prompt_parameters_of(fn, is_injected=is_injected)
    return Prompt(
        **_common(fn, options, PrimitiveOptions),
        name=name,
        description=_description(options, describe(fn).summary, name),
        handler=Handler(fn, parameters.injected, atomic=atomic_of(fn, options.get("atomic"))),
        source=source_of(fn),
        parameters=parameters,
    )


def build_completer(
    fn: Callable[..., Any], target: str, argument: str, atomic: bool | str | Sequence[str] | None = None
) -> Completer:
    """Compile a function of the text typed so far, which may also take the `arguments` chosen before. Raises
    DeclarationError.
    """
    injected = injected_parameters(fn)
    free = [name for name in inspect.signature(fn).parameters if name not in injected]
    if not free or not set(free[1:]) <= {"arguments"}:
        raise DeclarationError(
            f"{source_of(fn)}: a completion takes the text typed so far as its first parameter, "
            "and may take `arguments` and a Context besides"
        )
    return Completer(
        target=target,
        argument=argument,
        handler=Handler(fn, injected, atomic=atomic_of(fn, atomic)),
        value=free[0],
        takes_arguments="arguments" in free[1:],
        source=source_of(fn),
    )


@overload
def tool(fn: F) -> F: ...
@overload
def tool(
    fn: None = None, *, name: str | None = None, server: str = "default", **options: Unpack[ToolOptions]
) -> Callable[[F], F]: ...
def tool(fn: Any = None, *, name: str | None = None, server: str = "default", **options: Unpack[ToolOptions]) -> Any:
    """Register a function as a tool: `@tool`, or `@tool(permission="shop.view_order")`.

    The input schema comes from the signature and the docstring, the output schema from the return annotation. `name`
    defaults to the function's; `server` is the alias in `MCP["SERVERS"]`. `timeout` is in seconds. `atomic` makes
    dependencies and handler one transaction: True on the default database, besides those with ATOMIC_REQUESTS; an
    alias or a list of them on exactly those; False on none; by default on those with ATOMIC_REQUESTS. With
    `single_use_state` an answer to the tool's questions is taken once only (stateless era): a round that is sent again
    is refused, also when its response was lost.

    `scopes_for` is a function of the arguments, a dict that fits the schema, that returns the scopes which these take
    besides `scopes`; a client without them is told so before anything is sent or run. `rate`, such as "10/m", is how
    often each principal may call the tool; more is an error result that says how many seconds to wait.
    """
    return register_tool(registry_for(server), fn, name, options)


def resource(uri: str, *, server: str = "default", **options: Unpack[ResourceOptions]) -> Callable[[F], F]:
    """Register a function as the resource at `uri`, or as a template when `uri` has variables such as `{code}`.

    With `probe` the function is also run before a client subscribes, and before it is told of each update: where it
    returns None, or raises what means so, there is no such resource for the caller. Without, all URIs that fit are.
    """
    decorator: Callable[[F], F] = register_resource(registry_for(server), uri, options)
    return decorator


@overload
def prompt(fn: F) -> F: ...
@overload
def prompt(
    fn: None = None, *, name: str | None = None, server: str = "default", **options: Unpack[PrimitiveOptions]
) -> Callable[[F], F]: ...
def prompt(
    fn: Any = None, *, name: str | None = None, server: str = "default", **options: Unpack[PrimitiveOptions]
) -> Any:
    """Register a function as a prompt. Its parameters are the prompt's arguments; it returns text or messages."""
    return register_prompt(registry_for(server), fn, name, options)


def completion(
    target: str, argument: str, *, server: str = "default", atomic: bool | str | Sequence[str] | None = None
) -> Callable[[F], F]:
    """Register a function that completes `argument` of the prompt named `target`, or a variable of the URI template
    `target`. `atomic` is as for the other decorators.
    """
    decorator: Callable[[F], F] = register_completer(registry_for(server), target, argument, atomic)
    return decorator


def register_tool(registry: Registry, fn: Any, name: str | None, options: ToolOptions) -> Any:
    """`tool` for a given registry."""
    return _decorator(registry, fn, lambda f: build_tool(f, name, **options))


def register_resource(registry: Registry, uri: str, options: ResourceOptions) -> Any:
    """`resource` for a given registry."""
    return _decorator(registry, None, lambda f: build_resource(f, uri, **options))


def register_prompt(registry: Registry, fn: Any, name: str | None, options: PrimitiveOptions) -> Any:
    """`prompt` for a given registry."""
    return _decorator(registry, fn, lambda f: build_prompt(f, name, **options))


def register_completer(
    registry: Registry, target: str, argument: str, atomic: bool | str | Sequence[str] | None = None
) -> Any:
    """`completion` for a given registry."""
    return _decorator(registry, None, lambda f: build_completer(f, target, argument, atomic))


def _decorator(registry: Registry, fn: Any, build: Build) -> Any:
    def decorate(function: Any) -> Any:
        inner = getattr(function, "__func__", function)
        owner = getattr(inner, "__qualname__", "").rpartition(".")[0]
        if owner and not owner.endswith("<locals>") and not inspect.ismethod(function):
            # A method: its toolset registers it, once there is an instance to bind it to. Bound ones have theirs.
            setattr(inner, _MARK, (*getattr(inner, _MARK, ()), build))
            METHODS.add(inner, source_of(inner))
        else:
            registry.add(lambda: build(function), source_of(function))
        return function

    return decorate if fn is None else decorate(fn)


def declarations_of(function: Any) -> tuple[Build, ...]:
    """What the decorators noted on a method."""
    return getattr(function, _MARK, ())


def atomic_of(declared: Any, atomic: bool | str | Sequence[str] | None) -> Atomic:
    """What the `atomic` of a declaration means. Raises DeclarationError."""
    if atomic is None or atomic is True:
        return atomic
    names: Any = () if atomic is False else (atomic,) if isinstance(atomic, str) else atomic
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) and name for name in names):
        raise DeclarationError(
            f"{source_of(declared)}: atomic={atomic!r} means nothing; it is True, False, the alias of a database in "
            "DATABASES, or a list of aliases"
        )
    return tuple(dict.fromkeys(names))


def timeout_of(declared: Any, timeout: float | None) -> float | None:
    """The `timeout` of a declaration. Raises DeclarationError unless it is a number of seconds above 0."""
    if timeout is None:
        return None
    given: Any = timeout
    if not isinstance(given, int | float) or isinstance(given, bool) or not 0 < given < math.inf:
        raise DeclarationError(
            f"{source_of(declared)}: timeout={timeout!r} is no number of seconds above 0; leave it out for the "
            "server's TIMEOUT"
        )
    return timeout


def rate_of(declared: Any, rate: str | None) -> Rate | None:
    """The `rate` of a declaration. Raises DeclarationError."""
    if rate is None:
        return None
    try:
        return Rate.parse(rate)
    except ValueError as problem:
        raise DeclarationError(f"{source_of(declared)}: rate: {problem}") from None


def _scopes_for(declared: Any, found: Any) -> ScopesFor | None:
    if found is None or callable(found):
        return cast(ScopesFor | None, found)
    raise DeclarationError(
        f"{source_of(declared)}: scopes_for is a function that takes the arguments and returns scopes, not {found!r}"
    )


def _name(fn: Callable[..., Any], name: str | None) -> str:
    name = str(name or getattr(fn, "__name__", ""))
    if not NAME.fullmatch(name):
        raise DeclarationError(f"{source_of(fn)}: the name {name!r} must have 1 to 64 letters, digits, or one of _ - .")
    return name


def _description(options: PrimitiveOptions, summary: str, name: str) -> str:
    return str(options.get("description") or summary or name.replace("_", " ").capitalize())


def _common(fn: Callable[..., Any], options: PrimitiveOptions, kind: type[PrimitiveOptions]) -> dict[str, Any]:
    given: dict[str, Any] = dict(options)
    known = get_type_hints(kind)
    # A misspelt `permission` must not make a tool that is open to everybody.
    for name in sorted(given.keys() - known.keys()):
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise DeclarationError(f"{source_of(fn)}: there is no option {name!r}{hint}")
    for name in ("icons", "tags", "scopes"):
        # A string is a sequence too: of its letters.
        if isinstance(given.get(name), str):
            raise DeclarationError(f"{source_of(fn)}: {name} is a list; write {name}=[{given[name]!r}]")
    for key in given.get("meta", {}):
        if not isinstance(key, str) or not is_valid_key(key):
            raise DeclarationError(f"{source_of(fn)}: {key!r} is no key for meta; write it like 'example.com/key'")
    common: dict[str, Any] = {key: given[key] for key in ("title", "permission") if key in given}
    common["timeout"] = timeout_of(fn, given.get("timeout"))
    common |= {key: tuple(given.get(key, ())) for key in ("icons", "tags", "scopes")}
    common |= declared_hooks(given, source_of(fn))
    return common | {key: dict(given.get(key, {})) for key in ("meta", "metadata")}


def _is_content(annotation: Any) -> bool:
    """Does a return annotation say content blocks instead of data?"""
    if annotation is ToolStream or get_origin(annotation) is ToolStream:
        return True  # what becomes of its pieces is known when they are there
    return annotation in (ToolResult, bytes) or is_content_type(annotation) or hasattr(annotation, "_repr_png_")
