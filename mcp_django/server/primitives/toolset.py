"""Toolsets: classes of tools with common prefix, permissions, hooks and metadata.

    @register
    class Orders(Toolset):
        prefix = "orders_"
        permission = "shop.view_order"

        @tool
        def cancel(self, number: int) -> str: ...

Methods with the decorators of this package become primitives of the single instance of the toolset. Options of a method
extend those of the class. Permissions and scopes of both are required. Guards and interceptors of the class run first
(outermost). If both handle the same exception, the method's handler is used.
"""

import contextlib
import difflib
import functools
import inspect
import re
import types
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar, overload

from mcp_django.schema import DeclarationError
from mcp_django.server.injection.handler import describe_source
from mcp_django.server.primitives.base import Completer, Permission, Primitive, combine_permissions
from mcp_django.server.primitives.decorators import (
    check_name,
    get_declarations,
    parse_atomic,
    parse_hooks,
    parse_timeout,
)
from mcp_django.server.primitives.registry import MARKED_METHODS, Registry, get_registry

C = TypeVar("C", bound="type[Toolset]")
T = TypeVar("T", bound="Toolset")
ACCESS_ATTRIBUTES = ("permission", "scopes", "guards")
"""Attributes of a toolset class that restrict its callers."""
MIN_SIMILARITY = 0.82
"""Minimum similarity of a misspelt attribute to a known one, from 0 to 1."""


class Toolset:
    """A class of tools, resources, prompts and completions."""

    prefix: str = ""
    """Prefix of the name of every tool and prompt."""
    permission: ClassVar[Permission | None] = None
    scopes: ClassVar[Sequence[str]] = ()
    tags: ClassVar[Sequence[str]] = ()
    guards: ClassVar[Sequence[Callable[..., object]]] = ()
    interceptors: ClassVar[Sequence[Callable[..., object]]] = ()
    exception_handlers: ClassVar[Mapping[type[Exception], Callable[..., object]]] = {}
    metadata: ClassVar[Mapping[str, object]] = {}
    timeout: float | None = None
    """Maximum run time of its handlers in seconds, unless they set their own."""
    atomic: ClassVar[bool | str | Sequence[str] | None] = None
    """Default of the decorators' `atomic` option."""

    is_deferred: bool = False
    """True for a toolset that reads the complete project, such as the URLconf.

    It is registered when a server is created or the checks run.
    """

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        MARKED_METHODS.claim(cls)

    @classmethod
    def for_subject(cls, subject: object) -> "Toolset":
        """Return the instance for `@register(subject)`.

        Raises DeclarationError: plain toolsets have no subject.
        """
        raise DeclarationError(
            f"{describe_source(cls)}: only a ModelToolset can be registered for a model; write @register"
        )

    def attach(self, registry: Registry) -> None:
        """Prepare the registration; called once before the declarations are built.

        Raises DeclarationError if the toolset cannot be registered there.
        """

    def _connect(self) -> None:
        """Connect to the toolsets registered before; called when nothing can refuse this one any more."""

    def get_provided_primitives(self) -> Sequence[Primitive]:
        """Return the primitives that a provider serves in place of the registry.

        System checks build their list entries too, and report those that fail.
        """
        return ()

    @contextlib.asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Run around all calls of a process. Keep opened resources on `self`."""
        yield

    def get_declarations(self) -> list[tuple[Callable[[], Primitive | Completer], str]]:
        """Return the declarations of the marked methods, with their sources."""
        declarations: list[tuple[Callable[[], Primitive | Completer], str]] = []
        for name in _iter_attributes(type(self)):
            for declare in get_declarations(getattr(type(self), name, None)):
                method = getattr(self, name)
                declarations.append((functools.partial(self._build, declare, method), describe_source(method)))
        return declarations

    def _build(self, declare: Callable[[Any], Primitive | Completer], method: object) -> Primitive | Completer:
        """Build the declaration of a method and add the options of the class."""
        item = declare(method)
        if item.handler.atomic is None:
            item.handler.atomic = parse_atomic(type(self), self.atomic)
        if not isinstance(item, Primitive):
            return item

        if item.kind in ("tool", "prompt"):
            item.name = f"{self.prefix}{item.name}"
            check_name(item.name, describe_source(type(self)))
        item.permission = combine_permissions(self._get_permission(), item.permission)
        item.scopes = tuple(dict.fromkeys((*self.scopes, *item.scopes)))
        item.tags = tuple(dict.fromkeys((*self.tags, *item.tags)))
        item.metadata = {**self.metadata, **item.metadata}
        item.timeout = parse_timeout(type(self), self.timeout) if item.timeout is None else item.timeout

        hooks = parse_hooks(
            {name: getattr(self, name) for name in ("guards", "interceptors", "exception_handlers")},
            describe_source(type(self)),
        )
        item.guards = (*hooks["guards"], *item.guards)
        item.interceptors = (*hooks["interceptors"], *item.interceptors)
        item.exception_handlers = {**hooks["exception_handlers"], **item.exception_handlers}
        return item

    def _get_permission(self) -> Permission | None:
        """Return the class's permission, unbound if it is a function of the principal."""
        permission = inspect.getattr_static(type(self), "permission")
        if isinstance(permission, types.FunctionType) and len(inspect.signature(permission).parameters) == 1:
            return permission
        return self.permission


@overload
def register(subject: C) -> C: ...
@overload
def register(subject: T, *, server: str = "default") -> T: ...
@overload
def register(subject: Any = None, *, server: str = "default") -> Callable[[C], C]: ...
def register(subject: Any = None, *, server: str = "default") -> Any:
    """Register a Toolset class, an instance, or a ModelToolset for a model.

    @register
    @register(server="internal")
    @register(Airport)
    register(OpenAPIToolset(...))
    """
    if isinstance(subject, Toolset):
        registry = get_registry(server)
        with _collect_errors(registry, type(subject), subject.prefix):
            add_toolset(registry, subject)
        return subject

    def decorate(cls: C) -> C:
        if not issubclass(cls, Toolset):
            raise DeclarationError(f"{describe_source(cls)}: register() requires a subclass of Toolset")
        registry = get_registry(server)
        model_name = "" if subject is None else subject._meta.model_name
        with _collect_errors(registry, cls, cls.prefix or model_name):
            add_toolset(registry, cls() if subject is None else cls.for_subject(subject))
        return cls

    # A model is recognized by its `_meta`, because the engine does not import Django. Other values must be classes.
    if subject is None or hasattr(subject, "_meta"):
        return decorate
    toolset, subject = subject, None
    return decorate(toolset)


def add_toolset(registry: Registry, toolset: Toolset) -> None:
    """Register all declarations of a toolset."""
    if toolset.is_deferred:
        registry.defer(functools.partial(_add_now, registry, toolset))
    else:
        _add_now(registry, toolset)


def _add_now(registry: Registry, toolset: Toolset) -> None:
    with _collect_errors(registry, type(toolset), toolset.prefix):
        _check_access_attributes(type(toolset))
        toolset.attach(registry)
        declarations = toolset.get_declarations()
        toolset._connect()
        registry.toolsets.append(toolset)
        for declare, source in declarations:
            registry.add(declare, source, f"{toolset.prefix}{_get_own_name(source)}")


def _collect_errors(
    registry: Registry, declared: type[Toolset], prefix: str
) -> contextlib.AbstractContextManager[None]:
    """Return the context in which a failure refuses a whole toolset.

    `prefix` is the prefix of the names that the toolset would have.
    """
    names: tuple[str, ...] = (f"{prefix.rstrip('_')}_*",) if prefix else ()
    with contextlib.suppress(Exception):  # attributes of the class may fail; the report then lacks the names
        names = names or tuple(_iter_marked_methods(declared))
    return registry.collect_errors(describe_source(declared), names)


def find_misspelt_attributes(cls: type[Toolset]) -> Iterator[tuple[str, str]]:
    """Yield the attributes of a toolset class that resemble an option or a hook, each with that name.

    A class may have attributes of its own, so only similar names are found. Values are compared with options, and
    methods with hooks.
    """
    own = {name: value for base in cls.__mro__ if not _is_base(base) for name, value in vars(base).items()}
    known: dict[bool, set[str]] = {True: set(), False: set()}
    for base in filter(_is_base, cls.__mro__):
        for name, value in {**dict.fromkeys(getattr(base, "__annotations__", ())), **vars(base)}.items():
            if not name.startswith("_"):
                known[inspect.isroutine(value)].add(name)

    for name, value in own.items():
        if name.startswith("_") or name in known[True] | known[False] or isinstance(value, property | type):
            continue
        if get_declarations(value):
            continue
        matches = difflib.get_close_matches(name, known[inspect.isroutine(value)], n=1, cutoff=MIN_SIMILARITY)
        if matches:
            yield name, matches[0]


def _is_base(cls: type) -> bool:
    """Return True for a class of this package, and for `object`."""
    return cls.__module__.partition(".")[0] in (__name__.partition(".")[0], "builtins")


def _check_access_attributes(cls: type[Toolset]) -> None:
    """Check that no restriction is misspelt, because its toolset would be open to all callers.

    Raises DeclarationError.
    """
    for name, meant in find_misspelt_attributes(cls):
        if meant in ACCESS_ATTRIBUTES:
            raise DeclarationError(f"{describe_source(cls)}: unknown attribute {name!r}; did you mean {meant!r}?")


def _iter_attributes(cls: type) -> Iterator[str]:
    """Yield the names of all attributes, those of base classes first."""
    yield from dict.fromkeys(name for base in reversed(cls.__mro__) for name in vars(base))


def _iter_marked_methods(cls: type) -> Iterator[str]:
    yield from (name for name in _iter_attributes(cls) if get_declarations(getattr(cls, name, None)))


def _get_own_name(source: str) -> str:
    """Return the name of the function or operation in the source of a declaration."""
    return re.split(r"[., ]", source.partition(" (line ")[0])[-1]
