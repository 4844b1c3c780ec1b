"""Decorators `@tool`, `@resource`, `@prompt` and `@completion` for functions.

The function itself stays unchanged. The decorators of this module add to the registry of a server alias
(`server="default"`), those of a `Server` or `Toolset` to its own registry. All errors of a declaration are detected
here: invalid names, types without a schema, misplaced header annotations, duplicate names.
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
"""server/tools allows 128 characters; clients with a check allow 64."""


class PrimitiveOptions(TypedDict, total=False):
    """Options of all primitives."""

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
    """Options of `@tool`, without the name."""

    annotations: ToolAnnotations | Mapping[str, Any]
    input_schema: dict[str, Any]
    output_schema: Any
    single_use_state: bool
    scopes_for: ScopesFor
    rate: str


class ResourceOptions(PrimitiveOptions, total=False):
    """Options of `@resource`, without the URI."""

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
    """Compile a function to a Resource, or a ResourceTemplate if `uri` has variables.

    Raises DeclarationError.
    """
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
    """Compile a completion function. Raises DeclarationError.

    The function takes the text typed so far, and optionally the `arguments` chosen before.
    """
    injected = injected_parameters(fn)
    free = [name for name in inspect.signature(fn).parameters if name not in injected]
    if not free or not set(free[1:]) <= {"arguments"}:
        raise DeclarationError(
            f"{source_of(fn)}: a completion takes the text typed so far as its first parameter, "
            "and optionally `arguments` and a Context"
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
    """Register a tool function: `@tool`, or `@tool(permission="shop.view_order")`.

    The input schema is derived from the signature and the docstring, the output schema from the return annotation.
    `name` defaults to the function's name; `server` is the alias in `MCP["SERVERS"]`. `timeout` is in seconds.

    `atomic` runs dependencies and handler in one transaction. True covers the default database and those with
    ATOMIC_REQUESTS. An alias or a list of aliases covers exactly those databases; False covers none. By default,
    databases with ATOMIC_REQUESTS are covered.

    With `single_use_state`, each state of the tool's conversation is accepted once (stateless era). A repeated round is
    refused, even if its response was lost.

    `scopes_for` is a function of the validated arguments that returns scopes required in addition to `scopes`. A client
    without them is refused before the tool runs. `rate`, such as "10/m", limits the calls of each principal. Calls
    above the rate return an error result with the seconds to wait.
    """
    return register_tool(registry_for(server), fn, name, options)


def resource(uri: str, *, server: str = "default", **options: Unpack[ResourceOptions]) -> Callable[[F], F]:
    """Register a resource function, or a template if `uri` has variables (`{code}`).

    With `check_exists` the function also runs before a client subscribes and before each update notification. The
    resource does not exist for the caller if the function returns None or raises a not-found error. Without it, every
    matching URI is assumed to exist.
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
    """Register a function as a prompt.

    Its parameters are the arguments of the prompt. It returns text or messages.
    """
    return register_prompt(registry_for(server), fn, name, options)


def completion(
    target: str, argument: str, *, server: str = "default", atomic: bool | str | Sequence[str] | None = None
) -> Callable[[F], F]:
    """Register a completion for a prompt argument or a variable of a URI template.

    `target` is the name of the prompt or the text of the template. `atomic` works as in `tool`.
    """
    decorator: Callable[[F], F] = register_completer(registry_for(server), target, argument, atomic)
    return decorator


def register_tool(registry: Registry, fn: Any, name: str | None, options: ToolOptions) -> Any:
    """Register a tool in a given registry, like `tool`."""
    return _decorator(registry, fn, lambda f: build_tool(f, name, **options))


def register_resource(registry: Registry, uri: str, options: ResourceOptions) -> Any:
    """Register a resource in a given registry, like `resource`."""
    return _decorator(registry, None, lambda f: build_resource(f, uri, **options))


def register_prompt(registry: Registry, fn: Any, name: str | None, options: PrimitiveOptions) -> Any:
    """Register a prompt in a given registry, like `prompt`."""
    return _decorator(registry, fn, lambda f: build_prompt(f, name, **options))


def register_completer(
    registry: Registry, target: str, argument: str, atomic: bool | str | Sequence[str] | None = None
) -> Any:
    """Register a completion in a given registry, like `completion`."""
    return _decorator(registry, None, lambda f: build_completer(f, target, argument, atomic))


def _decorator(registry: Registry, fn: Any, build: Build) -> Any:
    def decorate(function: Any) -> Any:
        inner = getattr(function, "__func__", function)
        owner = getattr(inner, "__qualname__", "").rpartition(".")[0]
        if owner and not owner.endswith("<locals>") and not inspect.ismethod(function):
            # A method: its toolset registers it once an instance exists. Bound methods have an instance.
            setattr(inner, _MARK, (*getattr(inner, _MARK, ()), build))
            METHODS.add(inner, source_of(inner))
        else:
            registry.add(lambda: build(function), source_of(function))
        return function

    return decorate if fn is None else decorate(fn)


def declarations_of(function: Any) -> tuple[Build, ...]:
    """Return the declarations that the decorators stored on a method."""
    return getattr(function, _MARK, ())


def atomic_of(declared: Any, atomic: bool | str | Sequence[str] | None) -> Atomic:
    """Convert the `atomic` option of a declaration. Raises DeclarationError."""
    if atomic is None or atomic is True:
        return atomic
    names: Any = () if atomic is False else (atomic,) if isinstance(atomic, str) else atomic
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) and name for name in names):
        raise DeclarationError(
            f"{source_of(declared)}: atomic={atomic!r} is invalid; use True, False, the alias of a database in "
            "DATABASES, or a list of aliases"
        )
    return tuple(dict.fromkeys(names))


def timeout_of(declared: Any, timeout: float | None) -> float | None:
    """Validate the `timeout` of a declaration, in seconds. Raises DeclarationError."""
    if timeout is None:
        return None
    given: Any = timeout
    if not isinstance(given, int | float) or isinstance(given, bool) or not 0 < given < math.inf:
        raise DeclarationError(
            f"{source_of(declared)}: timeout={timeout!r} is not a number of seconds above 0; omit it to use "
            "the server's TIMEOUT"
        )
    return timeout


def rate_of(declared: Any, rate: str | None) -> Rate | None:
    """Parse the `rate` of a declaration. Raises DeclarationError."""
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
        f"{source_of(declared)}: scopes_for must be a function of the arguments that returns scopes, not {found!r}"
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
    # A misspelt `permission` must not create a tool that is open to all callers.
    for name in sorted(given.keys() - known.keys()):
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise DeclarationError(f"{source_of(fn)}: unknown option {name!r}{hint}")

    for name in ("icons", "tags", "scopes"):
        # A string is also a sequence, of its letters.
        if isinstance(given.get(name), str):
            raise DeclarationError(f"{source_of(fn)}: {name} must be a list; write {name}=[{given[name]!r}]")
    for key in given.get("meta", {}):
        if not isinstance(key, str) or not is_valid_key(key):
            raise DeclarationError(
                f"{source_of(fn)}: {key!r} is not a valid key for meta; write it like 'example.com/key'"
            )

    common: dict[str, Any] = {key: given[key] for key in ("title", "permission") if key in given}
    common["timeout"] = timeout_of(fn, given.get("timeout"))
    common |= {key: tuple(given.get(key, ())) for key in ("icons", "tags", "scopes")}
    common |= declared_hooks(given, source_of(fn))
    return common | {key: dict(given.get(key, {})) for key in ("meta", "metadata")}


def _is_content(annotation: Any) -> bool:
    """Return True if a return annotation denotes content blocks instead of data."""
    if annotation is ToolStream or get_origin(annotation) is ToolStream:
        return True  # the kind of its pieces is known only at run time
    return annotation in (ToolResult, bytes) or is_content_type(annotation) or hasattr(annotation, "_repr_png_")
