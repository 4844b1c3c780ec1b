"""The class form: tools that share a prefix, permissions, guards, interceptors, exception handlers and metadata.

    @register
    class Orders(Toolset):
        prefix = "orders_"
        permission = "shop.view_order"

        @tool
        def cancel(self, number: int) -> str: ...

Methods marked with the decorators of this package become primitives of the toolset's one instance. What a method says
itself adds to what the class says: permissions and scopes of both are required, guards and interceptors of the class
run first (outermost), and where both handle the same exception the method's handler wins.
"""

import contextlib
import functools
import inspect
import types
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar, overload

from mcp_django.schema import DeclarationError
from mcp_django.server.injection.handler import source_of
from mcp_django.server.primitives.base import Completer, Permission, Primitive, both
from mcp_django.server.primitives.decorators import atomic_of, declarations_of, timeout_of
from mcp_django.server.primitives.hooks import declared_hooks
from mcp_django.server.primitives.registry import METHODS, Problem, Registry, registry_for

C = TypeVar("C", bound="type[Toolset]")
T = TypeVar("T", bound="Toolset")


class Toolset:
    """A class of tools, resources, prompts and completions."""

    prefix: str = ""
    """Put before the name of every tool and prompt."""
    permission: ClassVar[Permission | None] = None
    scopes: ClassVar[Sequence[str]] = ()
    tags: ClassVar[Sequence[str]] = ()
    guards: ClassVar[Sequence[Callable[..., Any]]] = ()
    interceptors: ClassVar[Sequence[Callable[..., Any]]] = ()
    exception_handlers: ClassVar[Mapping[type[Exception], Callable[..., Any]]] = {}
    metadata: ClassVar[Mapping[str, Any]] = {}
    timeout: float | None = None
    """Seconds that its handlers may run, unless they say so themselves."""
    atomic: ClassVar[bool | str | Sequence[str] | None] = None
    """As the decorators' `atomic`, for handlers that do not say it themselves."""

    is_late: bool = False
    """Does it read what is complete only when the project is, such as the URLconf? Then it is registered when a server
    is made, or the checks run.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        METHODS.claim(cls)

    @classmethod
    def bound_to(cls, subject: Any) -> "Toolset":
        """The instance that `@register(subject)` registers. Raises DeclarationError: plain toolsets have no subject."""
        raise DeclarationError(
            f"{source_of(cls)}: only a ModelToolset is registered for something, such as a model; write @register"
        )

    def attach(self, registry: Registry) -> None:
        """Called once, before what it declares is built. Raises DeclarationError when it cannot be registered there."""

    @contextlib.asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Entered before the first call in a process, left when it ends. Keep what you open on `self`."""
        yield

    def declarations(self) -> list[tuple[Callable[[], Primitive | Completer], str]]:
        """What the marked methods declare, ready to be built, with their sources."""
        found: list[tuple[Callable[[], Primitive | Completer], str]] = []
        for name in dict.fromkeys(name for cls in reversed(type(self).__mro__) for name in vars(cls)):
            for declare in declarations_of(getattr(type(self), name, None)):
                method = getattr(self, name)
                found.append((functools.partial(self._build, declare, method), source_of(method)))
        return found

    def _build(self, declare: Callable[[Any], Primitive | Completer], method: Any) -> Primitive | Completer:
        """Build what a method declares and add what the class says."""
        item = declare(method)
        if item.handler.atomic is None:
            item.handler.atomic = atomic_of(type(self), self.atomic)
        if not isinstance(item, Primitive):
            return item
        if item.kind in ("tool", "prompt"):
            item.name = f"{self.prefix}{item.name}"
        item.permission = both(self._permission(), item.permission)
        item.scopes = tuple(dict.fromkeys((*self.scopes, *item.scopes)))
        item.tags = tuple(dict.fromkeys((*self.tags, *item.tags)))
        item.metadata = {**self.metadata, **item.metadata}
        item.timeout = timeout_of(type(self), self.timeout) if item.timeout is None else item.timeout
        hooks = declared_hooks(
            {name: getattr(self, name) for name in ("guards", "interceptors", "exception_handlers")},
            source_of(type(self)),
        )
        item.guards = (*hooks["guards"], *item.guards)
        item.interceptors = (*hooks["interceptors"], *item.interceptors)
        item.exception_handlers = {**hooks["exception_handlers"], **item.exception_handlers}
        return item

    def _permission(self) -> Permission | None:
        """What the class asks for. A function of the principal alone is no method, though it stands in a class."""
        found = inspect.getattr_static(type(self), "permission")
        if isinstance(found, types.FunctionType) and len(inspect.signature(found).parameters) == 1:
            return found
        return self.permission


@overload
def register(subject: C) -> C: ...
@overload
def register(subject: T, *, server: str = "default") -> T: ...
@overload
def register(subject: Any = None, *, server: str = "default") -> Callable[[C], C]: ...
def register(subject: Any = None, *, server: str = "default") -> Any:
    """Register a Toolset class: `@register`, `@register(server="internal")`, or for a model: `@register(Airport)`.

    An instance is registered as it is: `register(OpenAPIToolset(...))`.
    """
    if isinstance(subject, Toolset):
        registry = registry_for(server)
        with reported(registry, type(subject)):
            add_toolset(registry, subject)
        return subject

    def decorate(cls: C) -> C:
        if not issubclass(cls, Toolset):
            raise DeclarationError(f"{source_of(cls)}: register() takes a subclass of Toolset")
        registry = registry_for(server)
        with reported(registry, cls):
            add_toolset(registry, cls() if subject is None else cls.bound_to(subject))
        return cls

    # A model is known by its `_meta`: the engine knows no Django. Anything else is a class that should be a toolset.
    if subject is None or hasattr(subject, "_meta"):
        return decorate
    toolset, subject = subject, None
    return decorate(toolset)


def add_toolset(registry: Registry, toolset: Toolset) -> None:
    """Register everything that a toolset declares."""
    if toolset.is_late:
        registry.later(functools.partial(_add, registry, toolset))
    else:
        _add(registry, toolset)


def _add(registry: Registry, toolset: Toolset) -> None:
    with reported(registry, type(toolset)):
        _declare(registry, toolset)


def _declare(registry: Registry, toolset: Toolset) -> None:
    toolset.attach(registry)
    registry.toolsets.append(toolset)
    for declare, source in toolset.declarations():
        registry.add(declare, source)


@contextlib.contextmanager
def reported(registry: Registry, declared: Any) -> Iterator[None]:
    """Note a DeclarationError as a problem of the registry, unless that is strict."""
    try:
        yield
    except DeclarationError as problem:
        if registry.strict:
            raise
        registry.problems.append(Problem(str(problem), source_of(declared)))
