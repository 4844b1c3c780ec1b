"""Registries of declared primitives, by name and in order.

A decorator without a server adds to the registry of an alias, so `mcp_tools.py` needs no server object. The server of
that alias serves the registry. Names are unique: a duplicate is refused, and the error names both sources.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar
from weakref import WeakSet

from mcp_django.schema import DeclarationError, natively
from mcp_django.server.primitives.base import Completer, Primitive, Prompt, Resource, ResourceTemplate, Tool

P = TypeVar("P", bound=Primitive)
Kind = Literal["tool", "resource", "template", "prompt"]
logger = logging.getLogger("mcp_django.server")


@dataclass(frozen=True, slots=True)
class Problem:
    """A declaration that could not be registered; reported by a system check."""

    text: str
    source: str
    hint: str = "Correct the declaration, or rename one of the two."


class Collection(Generic[P]):
    """Primitives of one kind by key, sorted by key as cursors require."""

    def __init__(self, changed: "Callable[[Primitive, bool], None]") -> None:
        """Create a collection; `on_change` receives added (True) and removed items."""
        self._items: dict[str, P] = {}
        self._sorted: list[P] | None = None
        self._changed = changed

    def add(self, item: P) -> None:
        """Add a primitive. Raises DeclarationError if the key is taken."""
        taken = self._items.get(item.key)
        if taken is not None:
            raise DeclarationError(f"{item.kind} {item.key!r} of {item.source} is already registered by {taken.source}")
        self._items[item.key] = item
        self._sorted = None
        self._changed(item, True)

    def remove(self, key: str) -> P | None:
        """Remove and return a primitive; None if it does not exist."""
        item = self._items.pop(key, None)
        if item is not None:
            self._sorted = None
            self._changed(item, False)
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
        self.is_told = False
        """True if changes are published although it is not in `REGISTRIES`."""
        self.version = 0
        self.problems: list[Problem] = []

        self.tools: Collection[Tool] = Collection(self._changed)
        self.resources: Collection[Resource] = Collection(self._changed)
        self.templates: Collection[ResourceTemplate] = Collection(self._changed)
        self.prompts: Collection[Prompt] = Collection(self._changed)
        self.completers: dict[tuple[str, str], Completer] = {}
        self.toolsets: list[Any] = []
        """Instances of the registered toolset classes; the server enters their lifespans."""
        self._late: list[Callable[[], None]] = []
        self._settling = threading.RLock()
        self._is_settling = False
        self._is_settled = False
        self.followers: WeakSet[Following] = WeakSet()
        """Links from combined registries that copy this one under other names."""

    def _changed(self, item: "Primitive | Completer", here: bool) -> None:
        self.version += 1
        for follower in tuple(self.followers):
            follower.hear(item, here)

    def add(self, declare: Callable[[], Primitive | Completer], source: str) -> Primitive | Completer | None:
        """Build and register a primitive; None if a non-strict registry refused it."""
        try:
            item = natively(declare)
            self._place(item)
        except DeclarationError as problem:
            if self.strict:
                raise
            self.problems.append(Problem(str(problem), source))
            return None
        return item

    def later(self, register: Callable[[], None]) -> None:
        """Defer `register` until the project is complete.

        It runs when a server is created or the checks run; at once if this has already happened.
        """
        self._late.append(register)
        if self._is_settled:
            self.settle()

    def settle(self) -> None:
        """Run the deferred registrations. Failed ones run again at the next call."""
        self._is_settled = True
        if not self._late:
            return
        with self._settling:
            if self._is_settling:
                return  # a deferred registration reads the URLconf, which has requested the server
            self._is_settling = True
            try:
                while self._late:
                    self._late[0]()
                    self._late.pop(0)
            finally:
                self._is_settling = False

    def _place(self, item: Primitive | Completer) -> None:
        match item:
            case Tool():
                self.tools.add(item)
            case Resource():
                self.resources.add(item)
            case ResourceTemplate():
                self.templates.add(item)
            case Prompt():
                self.prompts.add(item)
            case Completer():
                taken = self.completers.get((item.target, item.argument))
                if taken is not None:
                    what = f"completion of {item.argument!r} for {item.target!r}"
                    raise DeclarationError(f"{what} of {item.source} is already registered by {taken.source}")
                self.completers[item.target, item.argument] = item
                self._changed(item, True)

    def take_out(self, item: "Primitive | Completer") -> None:
        """Remove a registered primitive or completer."""
        if isinstance(item, Primitive):
            self._places()[item.kind].remove(item.key)
        elif self.completers.pop((item.target, item.argument), None) is not None:
            self._changed(item, False)

    def _places(self) -> "dict[str, Collection[Any]]":
        return {
            "tool": self.tools,
            "resource": self.resources,
            "template": self.templates,
            "prompt": self.prompts,
        }

    def remove(self, kind: Kind, key: str) -> bool:
        """Remove a primitive with its completions.

        Returns False if it does not exist. Raises ValueError for an unknown kind.
        """
        places = self._places()
        if kind not in places:
            raise ValueError(f"Unknown kind {kind!r}; use one of {', '.join(places)}")
        if key not in places[kind]:
            return False
        if kind in ("template", "prompt"):
            for completer in [item for place, item in self.completers.items() if place[0] == key]:
                self.take_out(completer)
        places[kind].remove(key)
        return True

    def all(self) -> "Iterator[Primitive | Completer]":
        """Iterate over all primitives and completers, kind by kind."""
        for kind in (self.tools, self.resources, self.templates, self.prompts):
            yield from kind
        yield from self.completers.values()

    def match(self, uri: str) -> tuple[ResourceTemplate, dict[str, Any]] | None:
        """Return the first template that matches `uri`, with its variables."""
        for template in self.templates.sorted():
            values = template.template.match(uri)
            if values is not None:
                return template, values
        return None


class Following:
    """Link of a combined registry to a source registry.

    Both exist as long as the combined registry exists.
    """

    def __init__(self, joint: "Joint", source: Registry, take: "Take") -> None:
        self._joint, self._take = joint, take
        self.taken: dict[Primitive | Completer, Primitive | Completer] = {}
        """Items of the source registry, with their copies in the combined one."""
        source.followers.add(self)
        for item in source.all():
            self.hear(item, True)

    def hear(self, item: "Primitive | Completer", here: bool) -> None:
        """Add or remove the copy of an item that was added to or removed from the source."""
        if not here:
            taken = self.taken.pop(item, None)
            if taken is not None:
                self._joint.take_out(taken)
            return
        try:
            taken = natively(lambda: self._take(item))
            if self._joint.join(taken):
                self.taken[item] = taken
        except DeclarationError as problem:
            self._joint.refuse(str(problem), item.source)


class Joint(Registry):
    """Registry of a server and its mounts, combined.

    New declarations go to the server's own registry.
    """

    def __init__(self, own: Registry) -> None:
        super().__init__(own.name, strict=own.strict)
        self.own, self.toolsets = own, own.toolsets
        self._is_complete = False
        self._following = [Following(self, own, lambda item: item)]

    def follow(self, source: Registry, take: "Take") -> Following:
        """Copy all present and future items of `source`, converted by `transform`.

        Raises DeclarationError for a conflict if this registry is strict.
        """
        following = Following(self, source, take)
        self._following.append(following)
        return following

    def complete(self) -> None:
        """Complete the setup: later conflicts are logged, and their items skipped."""
        self._is_complete = True

    def add(self, declare: "Callable[[], Primitive | Completer]", source: str) -> "Primitive | Completer | None":
        known = len(self.problems)
        item = self.own.add(declare, source)
        if item is not None and self.strict and len(self.problems) > known:
            self.own.take_out(item)
            raise DeclarationError(self.problems.pop().text)
        return item

    def later(self, register: Callable[[], None]) -> None:
        self.own.later(register)

    def settle(self) -> None:
        self.own.settle()

    def remove(self, kind: Kind, key: str) -> bool:
        return self.own.remove(kind, key)

    def join(self, item: "Primitive | Completer") -> bool:
        """Add an item unless it is already present by another path.

        Raises DeclarationError if a different item has the same key.
        """
        if isinstance(item, Primitive):
            taken: Primitive | None = self._places()[item.kind].get(item.key)
            if taken is not None and taken.origin is item.origin:
                return False
        elif (known := self.completers.get((item.target, item.argument))) and known.handler is item.handler:
            return False
        self._place(item)
        return True

    def refuse(self, text: str, source: str) -> None:
        """Report an item that cannot be added.

        Raises DeclarationError if this registry is strict and its setup is not complete.
        """
        if self.strict and not self._is_complete:
            raise DeclarationError(text)
        self.problems.append(Problem(text, source, "Give one of the two another name or prefix."))
        if self._is_complete:
            logger.warning("Conflicting declaration skipped, the earlier one is served: %s", text)


Take = Callable[[Any], Any]
"""Function that copies an item of a source registry, or raises DeclarationError."""


class Methods:
    """Methods marked by decorators, until their class proves to be a Toolset."""

    def __init__(self) -> None:
        # By identity: other members of a class need not be hashable.
        self._waiting: dict[int, tuple[Any, str]] = {}

    def add(self, function: Any, source: str) -> None:
        self._waiting[id(function)] = function, source

    def claim(self, cls: type) -> None:
        """Remove the methods of `cls`, a Toolset, and of its plain base classes."""
        for base in cls.__mro__:
            for value in vars(base).values():
                self._waiting.pop(id(getattr(value, "__func__", value)), None)

    def problems(self) -> list[Problem]:
        """Return a problem for each method whose class is not a Toolset."""
        text = "{} is marked as a method of a toolset, but its class is not a Toolset"
        hint = "Make the class a subclass of mcp_django.Toolset, or move the function out of it."
        return [Problem(text.format(source), source, hint) for _, source in self._waiting.values()]


METHODS = Methods()

REGISTRIES: dict[str, Registry] = {}
"""Registries filled by `mcp_tools.py` modules, by server alias."""


def registry_for(alias: str) -> Registry:
    """Return the registry of a server alias; create it on first use."""
    if alias not in REGISTRIES:
        REGISTRIES[alias] = Registry(alias, strict=False)
    return REGISTRIES[alias]


def problems() -> list[Problem]:
    """Return all refused declarations, for the system checks."""
    for registry in REGISTRIES.values():
        registry.settle()
    return [problem for registry in REGISTRIES.values() for problem in registry.problems] + METHODS.problems()
