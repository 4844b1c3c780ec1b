"""Decorators `@tool`, `@resource`, `@prompt` and `@completion` for functions.

The function itself stays unchanged. The decorators of this module add to the registry of a server alias
(`server="default"`), those of a `Server` or `Toolset` to its own registry. All errors of a declaration are detected
here: invalid names, types without a schema, misplaced header annotations, duplicate names.
"""

import difflib
import hashlib
import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypedDict, TypeVar, Unpack, cast, get_origin, get_type_hints, overload

from mcp_django.protocol.content import is_content_type
from mcp_django.protocol.jsonrpc import JSONMapping, JSONObject
from mcp_django.protocol.meta import is_valid_key
from mcp_django.protocol.types import Annotations, Icon, ToolAnnotations
from mcp_django.protocol.uri import UriTemplate, quote_non_ascii
from mcp_django.schema import (
    DeclarationError,
    compile_output,
    compile_parameters,
    compile_prompt_parameters,
    compile_uri_parameters,
    describe_callable,
)
from mcp_django.server.injection.handler import AtomicDatabases, Handler, describe_source
from mcp_django.server.injection.parameters import find_injected_parameters, is_injected
from mcp_django.server.primitives.base import (
    Completer,
    Permission,
    Primitive,
    Prompt,
    Rate,
    Resource,
    ResourceTemplate,
    ScopesFor,
    Tool,
)
from mcp_django.server.primitives.registry import MARKED_METHODS, Registry, get_registry
from mcp_django.server.primitives.results import ExtensionResult, ToolResult, ToolStream
from mcp_django.server.primitives.task_options import TaskOptions, parse_task
from mcp_django.server.primitives.ui_options import Visibility, parse_ui

F = TypeVar("F", bound=Callable[..., Any])
BuildPrimitive = Callable[[Any], Primitive | Completer]
_DECLARATIONS_ATTRIBUTE = "__mcp_declarations__"
MAX_NAME_CHARACTERS = 64
"""Maximum characters of the name of a tool or prompt: the limit of the hosts."""
NAME_PATTERN = re.compile(rf"[A-Za-z0-9_.\-]{{1,{MAX_NAME_CHARACTERS}}}")
"""Pattern of the names of tools, prompts and arguments that all hosts accept.

server/tools allows 128 characters; clients with a check allow 64.
"""
NAME_DIGEST_CHARACTERS = 6
"""Hexadecimal digits of the digest in a shortened name."""


class PrimitiveOptions(TypedDict, total=False):
    """Options of all primitives."""

    title: str
    description: str
    icons: Sequence[Icon]
    tags: Sequence[str]
    meta: JSONMapping
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

    annotations: ToolAnnotations | JSONMapping
    input_schema: JSONObject
    output_schema: Any
    single_use_state: bool
    scopes_for: ScopesFor
    rate: str
    max_result: int
    task: bool | Literal["required"] | TaskOptions
    ui: str
    visibility: Sequence[Visibility]


class ResourceOptions(PrimitiveOptions, total=False):
    """Options of `@resource`, without the URI."""

    name: str
    mime_type: str
    size: int
    annotations: Annotations
    check_exists: bool


def build_tool(
    fn: Callable[..., Any],
    name: str | None = None,
    *,
    tool_class: Callable[..., Tool] = Tool,
    **options: Unpack[ToolOptions],
) -> Tool:
    """Compile a function to a tool of a class. Raises DeclarationError."""
    name = str(name or getattr(fn, "__name__", ""))
    check_name(name, describe_source(fn))
    documentation = describe_callable(fn)
    parameters = compile_parameters(fn, is_injected=is_injected, input_schema=options.get("input_schema"))
    output = compile_output(fn, output_schema=options.get("output_schema"), is_content=_is_content)

    return tool_class(
        **build_common_options(fn, options, ToolOptions),
        name=name,
        description=_get_description(options, documentation.summary, name),
        handler=Handler(fn, parameters.injected, atomic=parse_atomic(fn, options.get("atomic"))),
        source=describe_source(fn),
        parameters=parameters,
        output=output,
        annotations=ToolAnnotations.of(options.get("annotations")),
        single_use_state=bool(options.get("single_use_state", False)),
        scopes_for=_check_scopes_for(fn, options.get("scopes_for")),
        rate=parse_rate(fn, options.get("rate")),
        max_result=parse_max_result(fn, options.get("max_result")),
        task=parse_task(fn, options.get("task")),
        ui=parse_ui(fn, options.get("ui"), options.get("visibility")),
    )


def build_resource(fn: Callable[..., Any], uri: str, **options: Unpack[ResourceOptions]) -> Resource | ResourceTemplate:
    """Compile a function to a Resource, or a ResourceTemplate if `uri` has variables.

    Raises DeclarationError.
    """
    try:
        template = UriTemplate(uri)
    except ValueError as problem:
        raise DeclarationError(f"{describe_source(fn)}: {problem}") from None
    if not re.match(r"[A-Za-z][A-Za-z0-9+.\-]*:", uri):
        raise DeclarationError(f"{describe_source(fn)}: {uri!r} has no scheme; write it like 'airport://{{code}}'")

    documentation = describe_callable(fn)
    parameters = compile_uri_parameters(fn, template.variables, is_injected=is_injected)
    name = options.get("name") or str(getattr(fn, "__name__", uri))
    common = {
        **build_common_options(fn, options, ResourceOptions),
        "name": name,
        "description": _get_description(options, documentation.summary, name),
        "handler": Handler(fn, parameters.injected, atomic=parse_atomic(fn, options.get("atomic"))),
        "source": describe_source(fn),
        "mime_type": options.get("mime_type"),
        "annotations": options.get("annotations"),
        "check_exists": bool(options.get("check_exists", False)),
    }

    if template.is_static:
        return Resource(**common, uri=template.text, size=options.get("size"))
    return ResourceTemplate(**common, template=template, convert=parameters.convert)


def build_prompt(fn: Callable[..., Any], name: str | None = None, **options: Unpack[PrimitiveOptions]) -> Prompt:
    """Compile a function to a Prompt. Raises DeclarationError."""
    name = str(name or getattr(fn, "__name__", ""))
    check_name(name, describe_source(fn))
    parameters = compile_prompt_parameters(fn, is_injected=is_injected)
    return Prompt(
        **build_common_options(fn, options, PrimitiveOptions),
        name=name,
        description=_get_description(options, describe_callable(fn).summary, name),
        handler=Handler(fn, parameters.injected, atomic=parse_atomic(fn, options.get("atomic"))),
        source=describe_source(fn),
        parameters=parameters,
    )


def build_completer(
    fn: Callable[..., Any], target: str, argument: str, atomic: bool | str | Sequence[str] | None = None
) -> Completer:
    """Compile a completion function. Raises DeclarationError.

    The function takes the text typed so far, and optionally the `arguments` chosen before.
    """
    injected = find_injected_parameters(fn)
    free = [name for name in inspect.signature(fn).parameters if name not in injected]
    if not free or not set(free[1:]) <= {"arguments"}:
        raise DeclarationError(
            f"{describe_source(fn)}: a completion takes the text typed so far as its first parameter, "
            "and optionally `arguments` and a Context"
        )

    return Completer(
        target=quote_non_ascii(target),
        argument=argument,
        handler=Handler(fn, injected, atomic=parse_atomic(fn, atomic)),
        value=free[0],
        takes_arguments="arguments" in free[1:],
        source=describe_source(fn),
    )


@overload
def tool(fn: F) -> F: ...
@overload
def tool(
    fn: str | None = None, *, name: str | None = None, server: str = "default", **options: Unpack[ToolOptions]
) -> Callable[[F], F]: ...
def tool(fn: Any = None, *, name: str | None = None, server: str = "default", **options: Unpack[ToolOptions]) -> Any:
    """Register a tool function: `@tool`, `@tool("name")`, or `@tool(permission="shop.view_order")`.

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

    `max_result` is the maximum size of a result in bytes, in place of `LIMITS["RESULT_BYTES"]`. A larger result is
    replaced by an error for the model.

    `task` lets calls become tasks on servers with the tasks extension: True, "required", or `TaskOptions`.

    `ui` is the name of the app that shows the results, on servers with the extension for apps. `visibility` lists the
    parties to which clients offer the tool: "model", "app", or both. It is no permission.
    """
    return register_tool(get_registry(server), fn, name, options)


def resource(
    uri: str, *name_and_description: str, server: str = "default", **options: Unpack[ResourceOptions]
) -> Callable[[F], F]:
    """Register a resource function, or a template if `uri` has variables (`{code}`).

    The name and the description may follow the URI, or be given by keyword.

    With `check_exists` the function also runs before a client subscribes and before each update notification. The
    resource does not exist for the caller if the function returns None or raises a not-found error. Without it, every
    matching URI is assumed to exist.
    """
    decorator: Callable[[F], F] = register_resource(get_registry(server), uri, options, *name_and_description)
    return decorator


@overload
def prompt(fn: F) -> F: ...
@overload
def prompt(
    fn: str | None = None, *, name: str | None = None, server: str = "default", **options: Unpack[PrimitiveOptions]
) -> Callable[[F], F]: ...
def prompt(
    fn: Any = None, *, name: str | None = None, server: str = "default", **options: Unpack[PrimitiveOptions]
) -> Any:
    """Register a function as a prompt: `@prompt`, `@prompt("name")`, or `@prompt(title="…")`.

    Its parameters are the arguments of the prompt. It returns text or messages.
    """
    return register_prompt(get_registry(server), fn, name, options)


def completion(
    target: str, argument: str, *, server: str = "default", atomic: bool | str | Sequence[str] | None = None
) -> Callable[[F], F]:
    """Register a completion for a prompt argument or a variable of a URI template.

    `target` is the name of the prompt or the text of the template. `atomic` works as in `tool`.
    """
    decorator: Callable[[F], F] = register_completer(get_registry(server), target, argument, atomic)
    return decorator


def register_tool(registry: Registry, fn: Any, name: str | None, options: ToolOptions) -> Any:
    """Register a tool in a given registry, like `tool`."""
    fn, name = _split_name(fn, name)
    return _build_decorator(registry, fn, lambda f: build_tool(f, name, **options), name)


def register_resource(registry: Registry, uri: str, options: ResourceOptions, *name_and_description: str) -> Any:
    """Register a resource in a given registry, like `resource`."""
    positional = dict(zip(("name", "description"), name_and_description, strict=False))
    if len(name_and_description) > len(positional) or positional.keys() & options.keys():
        raise TypeError("resource() takes the URI, the name and the description, each once")
    options = cast(ResourceOptions, {**positional, **options})
    return _build_decorator(registry, None, lambda f: build_resource(f, uri, **options))


def register_prompt(registry: Registry, fn: Any, name: str | None, options: PrimitiveOptions) -> Any:
    """Register a prompt in a given registry, like `prompt`."""
    fn, name = _split_name(fn, name)
    return _build_decorator(registry, fn, lambda f: build_prompt(f, name, **options), name)


def register_completer(
    registry: Registry, target: str, argument: str, atomic: bool | str | Sequence[str] | None = None
) -> Any:
    """Register a completion in a given registry, like `completion`."""
    return _build_decorator(registry, None, lambda f: build_completer(f, target, argument, atomic))


def _split_name(fn: Any, name: str | None) -> tuple[Any, str | None]:
    """Return the function and the name of a declaration whose first argument may be the name."""
    if not isinstance(fn, str):
        return fn, name
    if name is not None:
        raise TypeError(f"The name is given twice: {fn!r} and name={name!r}")
    return None, fn


def _build_decorator(registry: Registry, fn: Any, build: BuildPrimitive, name: str | None = None) -> Any:
    def decorate(function: Any) -> Any:
        inner = getattr(function, "__func__", function)
        owner = getattr(inner, "__qualname__", "").rpartition(".")[0]
        if owner and not owner.endswith("<locals>") and not inspect.ismethod(function):
            # A method: its toolset registers it once an instance exists. Bound methods have an instance.
            setattr(inner, _DECLARATIONS_ATTRIBUTE, (*getattr(inner, _DECLARATIONS_ATTRIBUTE, ()), build))
            MARKED_METHODS.add(inner, describe_source(inner))
        else:
            registry.add(
                lambda: build(function), describe_source(function), str(name or getattr(inner, "__name__", ""))
            )
        return function

    return decorate if fn is None else decorate(fn)


def get_declarations(function: Any) -> tuple[BuildPrimitive, ...]:
    """Return the declarations that the decorators stored on a method."""
    return getattr(function, _DECLARATIONS_ATTRIBUTE, ())


def parse_atomic(declared: Any, atomic: bool | str | Sequence[str] | None) -> AtomicDatabases:
    """Convert the `atomic` option of a declaration. Raises DeclarationError."""
    if atomic is None or atomic is True:
        return atomic
    if atomic is False:
        return ()
    names: Any = (atomic,) if isinstance(atomic, str) else atomic
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) and name for name in names):
        raise DeclarationError(
            f"{describe_source(declared)}: atomic={atomic!r} is invalid; use True, False, the alias of a database in "
            "DATABASES, or a list of aliases"
        )
    return tuple(dict.fromkeys(names))


def parse_timeout(declared: Any, timeout: float | None) -> float | None:
    """Return the `timeout` of a class or function, in seconds.

    Raises DeclarationError for an invalid one.
    """
    if timeout is None:
        return None
    given: Any = timeout
    if not isinstance(given, int | float) or isinstance(given, bool) or not 0 < given < math.inf:
        raise DeclarationError(
            f"{describe_source(declared)}: timeout={timeout!r} is not a number of seconds above 0; omit it to use "
            "the server's TIMEOUT"
        )
    return timeout


def parse_rate(declared: Any, rate: str | None) -> Rate | None:
    """Parse the `rate` of a declaration. Raises DeclarationError."""
    if rate is None:
        return None
    try:
        return Rate.parse(rate)
    except ValueError as problem:
        raise DeclarationError(f"{describe_source(declared)}: rate: {problem}") from None


def parse_max_result(declared: Any, max_result: int | None) -> int | None:
    """Validate the `max_result` of a declaration, in bytes. Raises DeclarationError."""
    given: Any = max_result
    if given is None or (type(given) is int and given > 0):
        return max_result
    raise DeclarationError(
        f"{describe_source(declared)}: max_result={given!r} is not a number of bytes above 0; omit it to use "
        "LIMITS['RESULT_BYTES']"
    )


def parse_hooks(options: Mapping[str, Any], where: str) -> JSONObject:
    """Validate the hooks of a declaration. Raises DeclarationError.

    Classes are refused: calling one creates an instance instead of checking, so every caller would pass.
    """
    guards, interceptors = (tuple(options.get(name, ())) for name in ("guards", "interceptors"))
    handlers = dict(options.get("exception_handlers", {}))
    for name, functions in (
        ("guards", guards),
        ("interceptors", interceptors),
        ("exception_handlers", handlers.values()),
    ):
        for function in functions:
            if isinstance(function, type) or not callable(function):
                raise DeclarationError(f"{where}: {name} must be functions or callable objects, not {function!r}")

    for kind in handlers:
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            raise DeclarationError(f"{where}: keys of exception_handlers must be exception classes, not {kind!r}")
    return {"guards": guards, "interceptors": interceptors, "exception_handlers": handlers}


def _check_scopes_for(declared: Any, scopes_for: Any) -> ScopesFor | None:
    if scopes_for is None or callable(scopes_for):
        return cast(ScopesFor | None, scopes_for)
    raise DeclarationError(
        f"{describe_source(declared)}: scopes_for must be a function of the arguments that returns scopes, not "
        f"{scopes_for!r}"
    )


def check_name(name: str, source: str) -> None:
    """Check the name of a tool or prompt, with its prefix. Raises DeclarationError."""
    if not NAME_PATTERN.fullmatch(name):
        raise DeclarationError(
            f"{source}: the name {name!r} must have 1 to {MAX_NAME_CHARACTERS} letters without accents, digits, or one "
            "of _ - .; give it another name= or prefix"
        )


def shorten_name(name: str, max_characters: int) -> str:
    """Return a name that is cut to a length if necessary; a digest keeps it unique and stable."""
    if len(name) <= max_characters:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:NAME_DIGEST_CHARACTERS]
    return f"{name[: max_characters - NAME_DIGEST_CHARACTERS - 1].rstrip('_')}_{digest}"


def _get_description(options: PrimitiveOptions, summary: str, name: str) -> str:
    return str(options.get("description") or summary or name.replace("_", " ").capitalize())


def describe_close_match(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean …?" with the most similar known name, or ""."""
    matches = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {matches[0]!r}?" if matches else ""


def check_option_names(label: str, options: Mapping[str, Any], kind: type[Any]) -> None:
    """Check that a TypedDict has all options; `label` names the declaration, for messages.

    Raises DeclarationError: a misspelt `permission` must not create a tool that is open to all callers.
    """
    known = get_type_hints(kind)
    for name in sorted(options.keys() - known.keys()):
        raise DeclarationError(f"{label}: unknown option {name!r}{describe_close_match(name, known)}")


def build_common_options(fn: Callable[..., Any], options: PrimitiveOptions, kind: type[PrimitiveOptions]) -> JSONObject:
    """Return the validated options that all primitives have, as fields. Raises DeclarationError."""
    given: JSONObject = dict(options)
    check_option_names(describe_source(fn), given, kind)
    for name in ("icons", "tags", "scopes"):
        # A string is also a sequence, of its letters.
        if isinstance(given.get(name), str):
            raise DeclarationError(f"{describe_source(fn)}: {name} must be a list; write {name}=[{given[name]!r}]")
    for key in given.get("meta", {}):
        if not isinstance(key, str) or not is_valid_key(key):
            raise DeclarationError(
                f"{describe_source(fn)}: {key!r} is not a valid key for meta; write it like 'example.com/key'"
            )

    common: JSONObject = {key: given[key] for key in ("title", "permission") if key in given}
    common["timeout"] = parse_timeout(fn, given.get("timeout"))
    common |= {key: tuple(given.get(key, ())) for key in ("icons", "tags", "scopes")}
    common |= parse_hooks(given, describe_source(fn))
    return common | {key: dict(given.get(key, {})) for key in ("meta", "metadata")}


def _is_content(annotation: Any) -> bool:
    """Return True if a return annotation denotes content blocks instead of data."""
    if annotation is ToolStream or get_origin(annotation) is ToolStream:
        return True  # the kind of its pieces is known only at run time
    return (
        annotation in (ToolResult, ExtensionResult, bytes)
        or is_content_type(annotation)
        or hasattr(annotation, "_repr_png_")
    )
