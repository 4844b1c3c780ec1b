"""Registries of declared primitives, by name and in order.

A decorator without a server adds to the registry of an alias, so `mcp_tools.py` needs no server object. The server of
that alias serves the registry. Names are unique: a duplicate is refused, and the error names both sources.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, Literal, TypeVar
from weakref import WeakSet

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.jsonrpc import JSONObject
from mcp_django.protocol.log_text import get_logger
from mcp_django.schema import ConflictError, DeclarationError, call_in_default_language, convert_failures
from mcp_django.server.primitives.base import Completer, Primitive, Prompt, Resource, ResourceTemplate, Tool
from mcp_django.server.primitives.problems import DeclarationProblem

P = TypeVar("P", bound=Primitive)
T = TypeVar("T")
Kind = Literal["tool", "resource", "template", "prompt"]
logger = get_logger("mcp_django.server")


class PrimitiveCollection(Generic[P]):
    """Primitives of one kind by key, sorted by key as cursors require."""

    def __init__(self, on_change: "Callable[[Primitive, bool], None]") -> None:
        """Create a collection; `on_change` receives added (True) and removed items."""
        self._items: dict[str, P] = {}
        self._sorted: list[P] | None = None
        self._on_change = on_change

    def add(self, item: P) -> None:
        """Add a primitive. Raises DeclarationError if the key is taken."""
        taken = self._items.get(item.key)
        if taken is not None:
            raise ConflictError(f"{item.kind} {item.key!r} of {item.source} is already registered by {taken.source}")
        self._items[item.key] = item
        self._sorted = None
        self._on_change(item, True)

    def remove(self, key: str) -> P | None:
        """Remove and return a primitive; None if it does not exist."""
        item = self._items.pop(key, None)
        if item is not None:
            self._sorted = None
            self._on_change(item, False)
        return item

    def get(self, key: str) -> P | None:
        return self._items.get(key)

    def sorted(self) -> list[P]:
        """Return all primitives, sorted by key."""
        if self._sorted is None:
            self._sorted = [self._items[key] for key in sorted(self._items)]
        return self._sorted

    def __iter__(self) -> Iterator[P]:
        return iter(self.sorted())

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, key: str) -> bool:
        return key in self._items


class Registry:
    """Tools, resources, templates, prompts and completers.

    `version` increases with every change.
    """

    def __init__(self, name: str = "", *, strict: bool = True) -> None:
        self.name = name
        self.strict = strict
        """True to raise DeclarationError; False to record problems for the system checks."""
        self.publishes_changes = False
        """True if changes are published although it is not in `REGISTRIES`."""
        self.version = 0
        self.problems: list[DeclarationProblem] = []

        self.tools: PrimitiveCollection[Tool] = PrimitiveCollection(self._on_change)
        self.resources: PrimitiveCollection[Resource] = PrimitiveCollection(self._on_change)
        self.templates: PrimitiveCollection[ResourceTemplate] = PrimitiveCollection(self._on_change)
        self.prompts: PrimitiveCollection[Prompt] = PrimitiveCollection(self._on_change)
        self._collections: dict[str, PrimitiveCollection[Any]] = {
            "tool": self.tools,
            "resource": self.resources,
            "template": self.templates,
            "prompt": self.prompts,
        }
        self.completers: dict[tuple[str, str], Completer] = {}
        self.toolsets: list[Any] = []
        """Instances of the registered toolset classes; the server enters their lifespans."""
        self._deferred: list[Callable[[], None]] = []
        self._deferred_lock = threading.RLock()
        self._is_running_deferred = False
        self._has_run_deferred = False
        self.links: WeakSet[RegistryLink] = WeakSet()
        """Links from combined registries that copy this one under other names."""

    def _on_change(self, item: "Primitive | Completer", added: bool) -> None:
        self.version += 1
        for link in tuple(self.links):
            link.on_change(item, added)

    def add(
        self, declare: Callable[[], Primitive | Completer], source: str, name: str = ""
    ) -> Primitive | Completer | None:
        """Build and register a primitive; None if a non-strict registry refused it.

        `name` is the name that the primitive would have, for the report of a refusal.
        """
        added: Primitive | Completer | None = None
        with self.collect_errors(source, (name,) if name else ()):
            item = call_in_default_language(declare)
            self._insert(item)
            added = item
        return added  # noqa: RET504  None if the context has collected an error

    @contextlib.contextmanager
    def collect_errors(self, source: str, names: Sequence[str] = ()) -> Iterator[None]:
        """Record any failure of the declaration at `source`, so that the other ones are served.

        `names` are those of its primitives. Raises DeclarationError if this registry is strict.
        """
        try:
            with convert_failures(source):
                yield
        except DeclarationError as error:
            if self.strict:
                raise
            self.report(DeclarationProblem.from_error(error, source, names))

    def can_list(self, item: Primitive) -> bool:
        """Return True if the list entry of a primitive can be built; otherwise report the failure.

        Entries are built late, when the project is complete.
        """
        return self.try_build(lambda: jsonrpc.dumps(item.wire), item.source, item.name) is not None

    def try_build(self, build: Callable[[], T], source: str, name: str) -> T | None:
        """Return the result of `build` for a list; None if it fails.

        The failure is reported, even if this registry is strict.
        """
        try:
            with convert_failures(source):
                return build()
        except DeclarationError as error:
            self.report(DeclarationProblem.from_error(error, source, (name,) if name else ()))
        return None

    def report(self, problem: DeclarationProblem) -> None:
        """Record a problem for the system checks, and log it for processes that run no checks.

        Problems with the same text are reported once, with all names.
        """
        for index, known in enumerate(self.problems):
            if str(known) == str(problem):
                self.problems[index] = known.merge(problem)
                return
        self.problems.append(problem)
        logger.error("Declaration not served: %s", problem)
        if problem.cause is not None:
            logger.debug("Traceback of %s", problem.source, exc_info=problem.cause)

    def defer(self, register: Callable[[], None]) -> None:
        """Defer `register` until the project is complete.

        It runs when a server is created or the checks run; at once if this has already happened.
        """
        self._deferred.append(register)
        if self._has_run_deferred:
            self.run_deferred()

    def run_deferred(self) -> None:
        """Run the deferred registrations. Failed ones run again at the next call."""
        self._has_run_deferred = True
        if not self._deferred:
            return
        with self._deferred_lock:
            if self._is_running_deferred:
                return  # a deferred registration reads the URLconf, which has requested the server
            self._is_running_deferred = True
            try:
                while self._deferred:
                    self._deferred[0]()
                    self._deferred.pop(0)
            finally:
                self._is_running_deferred = False

    def _insert(self, item: Primitive | Completer) -> None:
        if isinstance(item, Primitive):
            self._collections[item.kind].add(item)
            return

        taken = self.completers.get((item.target, item.argument))
        if taken is not None:
            what = f"completion of {item.argument!r} for {item.target!r}"
            raise ConflictError(f"{what} of {item.source} is already registered by {taken.source}")
        self.completers[item.target, item.argument] = item
        self._on_change(item, True)

    def remove_item(self, item: "Primitive | Completer") -> None:
        """Remove a registered primitive or completer."""
        if isinstance(item, Primitive):
            self._collections[item.kind].remove(item.key)
        elif self.completers.pop((item.target, item.argument), None) is not None:
            self._on_change(item, False)

    def remove(self, kind: Kind, key: str) -> bool:
        """Remove a primitive with its completions.

        Returns False if it does not exist. Raises ValueError for an unknown kind.
        """
        if kind not in self._collections:
            raise ValueError(f"Unknown kind {kind!r}; use one of {', '.join(self._collections)}")
        if key not in self._collections[kind]:
            return False
        if kind in ("template", "prompt"):
            for completer in [item for place, item in self.completers.items() if place[0] == key]:
                self.remove_item(completer)
        self._collections[kind].remove(key)
        return True

    def iter_all(self) -> "Iterator[Primitive | Completer]":
        """Iterate over all primitives and completers, kind by kind."""
        for collection in self._collections.values():
            yield from collection
        yield from self.completers.values()

    def refresh(self, item: Primitive) -> None:
        """Discard the list entry of a primitive that has changed, and those of its copies."""
        vars(item).pop("wire", None)
        self.version += 1
        for link in tuple(self.links):
            link.refresh(item)

    def iter_provided_primitives(self) -> "Iterator[Primitive]":
        """Iterate over the primitives of toolsets that providers serve in place of this registry."""
        for toolset in self.toolsets:
            yield from toolset.get_provided_primitives()

    def match(self, uri: str) -> tuple[ResourceTemplate, JSONObject] | None:
        """Return the first template that matches `uri`, with its variables."""
        for template in self.templates.sorted():
            values = template.template.match(uri)
            if values is not None:
                return template, values
        return None


class RegistryLink:
    """Link of a combined registry to a source registry.

    Both exist as long as the combined registry exists.
    """

    def __init__(self, combined: "CombinedRegistry", source: Registry, transform: "TransformItem") -> None:
        self._combined = combined
        self._transform = transform
        self.copies: dict[Primitive | Completer, Primitive | Completer] = {}
        """Items of the source registry, with their copies in the combined one."""
        source.links.add(self)
        for item in source.iter_all():
            self.on_change(item, True)

    def on_change(self, item: "Primitive | Completer", added: bool) -> None:
        """Add or remove the copy of an item that was added to or removed from the source."""
        if not added:
            copied = self.copies.pop(item, None)
            if copied is not None:
                self._combined.remove_item(copied)
            return
        try:
            with convert_failures(item.source):
                copied = call_in_default_language(lambda: self._transform(item))
                if self._combined.merge(copied):
                    self.copies[item] = copied
        except DeclarationError as problem:
            self._combined.report_conflict(str(problem), item.source)

    def refresh(self, item: Primitive) -> None:
        """Discard the list entry of the copy of an item."""
        copied = self.copies.get(item)
        if isinstance(copied, Primitive):
            self._combined.refresh(copied)


class CombinedRegistry(Registry):
    """Registry of a server and its mounts, combined.

    New declarations go to the server's own registry.
    """

    def __init__(self, own: Registry) -> None:
        super().__init__(own.name, strict=own.strict)
        self.own = own
        self.toolsets = own.toolsets
        self._is_complete = False
        self._links = [RegistryLink(self, own, lambda item: item)]

    def link(self, source: Registry, transform: "TransformItem") -> RegistryLink:
        """Copy all present and future items of `source`, converted by `transform`.

        Raises DeclarationError for a conflict if this registry is strict.
        """
        link = RegistryLink(self, source, transform)
        self._links.append(link)
        return link

    def mark_complete(self) -> None:
        """Complete the setup: later conflicts are logged, and their items skipped."""
        self._is_complete = True

    def add(
        self, declare: "Callable[[], Primitive | Completer]", source: str, name: str = ""
    ) -> "Primitive | Completer | None":
        known = len(self.problems)
        item = self.own.add(declare, source, name)
        if item is not None and self.strict and len(self.problems) > known:
            self.own.remove_item(item)
            raise DeclarationError(self.problems.pop().text)
        return item

    def defer(self, register: Callable[[], None]) -> None:
        self.own.defer(register)

    def run_deferred(self) -> None:
        self.own.run_deferred()

    def remove(self, kind: Kind, key: str) -> bool:
        return self.own.remove(kind, key)

    def merge(self, item: "Primitive | Completer") -> bool:
        """Add an item unless it is already present by another path.

        Raises DeclarationError if a different item has the same key.
        """
        if isinstance(item, Primitive):
            taken: Primitive | None = self._collections[item.kind].get(item.key)
            if taken is not None and taken.origin is item.origin:
                return False
        elif (known := self.completers.get((item.target, item.argument))) and known.handler is item.handler:
            return False
        self._insert(item)
        return True

    def report_conflict(self, text: str, source: str) -> None:
        """Report an item that cannot be added.

        Raises DeclarationError if this registry is strict and its setup is not complete.
        """
        if self.strict and not self._is_complete:
            raise DeclarationError(text)
        self.report(DeclarationProblem(text, source, ConflictError.hint))


TransformItem = Callable[[Any], Any]
"""Function that copies an item of a source registry, or raises DeclarationError."""


class MarkedMethods:
    """Methods marked by decorators, until their class proves to be a Toolset."""

    def __init__(self) -> None:
        # By identity: other members of a class need not be hashable.
        self._unclaimed: dict[int, tuple[Any, str]] = {}

    def add(self, function: Any, source: str) -> None:
        self._unclaimed[id(function)] = function, source

    def claim(self, cls: type) -> None:
        """Remove the methods of `cls`, a Toolset, and of its plain base classes."""
        for base in cls.__mro__:
            for value in vars(base).values():
                self._unclaimed.pop(id(getattr(value, "__func__", value)), None)

    def problems(self) -> list[DeclarationProblem]:
        """Return a problem for each method whose class is not a Toolset."""
        text = "{} is marked as a method of a toolset, but its class is not a Toolset"
        hint = "Make the class a subclass of mcp_django.Toolset, or move the function out of it."
        return [
            DeclarationProblem(text.format(source), source, hint, (getattr(function, "__name__", ""),))
            for function, source in self._unclaimed.values()
        ]


MARKED_METHODS = MarkedMethods()

REGISTRIES: dict[str, Registry] = {}
"""Registries filled by `mcp_tools.py` modules, by server alias."""


def get_registry(alias: str) -> Registry:
    """Return the registry of a server alias; create it on first use."""
    if alias not in REGISTRIES:
        REGISTRIES[alias] = Registry(alias, strict=False)
    return REGISTRIES[alias]


def collect_problems() -> list[DeclarationProblem]:
    """Return all declarations that are not served, for the system checks.

    The list entries of all primitives are built, because some failures are found only then.
    """
    for registry in REGISTRIES.values():
        registry.run_deferred()
        for item in [*registry.iter_all(), *registry.iter_provided_primitives()]:
            if isinstance(item, Primitive):
                registry.can_list(item)
    found = [problem for registry in REGISTRIES.values() for problem in registry.problems]
    return [problem for problem in found if not problem.has_own_check] + MARKED_METHODS.problems()


def find_problem(registry: Registry, name: str) -> DeclarationProblem | None:
    """Return the problem because of which a server lacks a primitive of this name, or None."""
    own = registry.own.problems if isinstance(registry, CombinedRegistry) else []
    problems = (*registry.problems, *own, *MARKED_METHODS.problems())
    return next((problem for problem in problems if problem.covers(name)), None)
