"""What has been registered, by name and in order; the static provider.

Every decorator that is not given a server adds to the registry of an alias, so that `mcp_tools.py` needs no server
object; the server of that alias serves it. Names are unique: the second of two is refused, and both sources are
named.
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
    """A declaration that could not be registered. A system check reports it."""

    text: str
    source: str
    hint: str = "Mend the declaration, or give one of the two another name."


class Collection(Generic[P]):
    """Primitives of one kind by key, listed in the order of their keys, which cursors build on."""

    def __init__(self, changed: "Callable[[Primitive, bool], None]") -> None:
        """`changed` is told of what came, and of what went (False)."""
        self._items: dict[str, P] = {}
        self._sorted: list[P] | None = None
        self._changed = changed

    def add(self, item: P) -> None:
        """Raises DeclarationError when the key is taken."""
        taken = self._items.get(item.key)
        if taken is not None:
            raise DeclarationError(f"{item.kind} {item.key!r} of {item.source} is already registered by {taken.source}")
        self._items[item.key] = item
        self._sorted = None
        self._changed(item, True)

    def remove(self, key: str) -> P | None:
        """Take it out; None when it was not there."""
        item = self._items.pop(key, None)
        if item is not None:
            self._sorted = None
            self._changed(item, False)
        return item

    def get(self, key: str) -> P | None:
        return self._items.get(key)

    def sorted(self) -> list[P]:
        """All of them, in the order of their keys."""
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
    """Tools, resources, templates, prompts and completers. `version` grows with every change."""

    def __init__(self, name: str = "", *, strict: bool = True) -> None:
        self.name = name
        self.strict = strict
        """Raise a DeclarationError; otherwise note it as a problem and go on, so that a system check reports them
        all.
        """
        self.is_told = False
        """Besides those of `REGISTRIES`: is what changes in it told under its name?"""
        self.version = 0
        self.problems: list[Problem] = []
        self.tools: Collection[Tool] = Collection(self._changed)
        self.resources: Collection[Resource] = Collection(self._changed)
        self.templates: Collection[ResourceTemplate] = Collection(self._changed)
        self.prompts: Collection[Prompt] = Collection(self._changed)
        self.completers: dict[tuple[str, str], Completer] = {}
        self.toolsets: list[Any] = []
        """Instances of the toolset classes registered here; the server enters their lifespans."""
        self._late: list[Callable[[], None]] = []
        self._settling = threading.RLock()
        self._is_settling = False
        self._is_settled = False
        self.followers: WeakSet[Following] = WeakSet()
        """Who has what is here under other names."""

    def _changed(self, item: "Primitive | Completer", here: bool) -> None:
        self.version += 1
        for follower in tuple(self.followers):
            follower.hear(item, here)

    def add(self, declare: Callable[[], Primitive | Completer], source: str) -> Primitive | Completer | None:
        """Build a primitive and register it. None when it was refused and this registry is not strict."""
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
        """Have `register` called once the project is complete: when a server is made of this, or the checks run; at
        once where that was before.
        """
        self._late.append(register)
        if self._is_settled:
            self.settle()

    def settle(self) -> None:
        """Register what waits for the project to be complete. Once is enough; what fails is tried again."""
        self._is_settled = True
        if not self._late:
            return
        with self._settling:
            if self._is_settling:
                return  # the URLconf that it reads has asked for the server
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
        """Take out what is here."""
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
        """Take one out, with its completions. False when it was not there; raises ValueError for another kind."""
        places = self._places()
        if kind not in places:
            raise ValueError(f"There are {', '.join(places)}, but no {kind!r}")
        if key not in places[kind]:
            return False
        if kind in ("template", "prompt"):
            for completer in [item for place, item in self.completers.items() if place[0] == key]:
                self.take_out(completer)
        places[kind].remove(key)
        return True

    def all(self) -> "Iterator[Primitive | Completer]":
        """Everything, kind by kind."""
        for kind in (self.tools, self.resources, self.templates, self.prompts):
            yield from kind
        yield from self.completers.values()

    def match(self, uri: str) -> tuple[ResourceTemplate, dict[str, Any]] | None:
        """The first template, in listing order, that `uri` fits, with its variables."""
        for template in self.templates.sorted():
            values = template.template.match(uri)
            if values is not None:
                return template, values
        return None


class Following:
    """What a joint registry has of another one. Both hold for as long as the joint one is there."""

    def __init__(self, joint: "Joint", source: Registry, take: "Take") -> None:
        self._joint, self._take = joint, take
        self.taken: dict[Primitive | Completer, Primitive | Completer] = {}
        """What the other has, and what it is here."""
        source.followers.add(self)
        for item in source.all():
            self.hear(item, True)

    def hear(self, item: "Primitive | Completer", here: bool) -> None:
        """Something came to the other registry, or went."""
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
    """What a server registers, and what is mounted in it, in one. What is registered here goes to its own registry."""

    def __init__(self, own: Registry) -> None:
        super().__init__(own.name, strict=own.strict)
        self.own, self.toolsets = own, own.toolsets
        self._is_complete = False
        self._following = [Following(self, own, lambda item: item)]

    def follow(self, source: Registry, take: "Take") -> Following:
        """Have what `source` has, now and later, as `take` makes it. Raises DeclarationError if this one is strict."""
        following = Following(self, source, take)
        self._following.append(following)
        return following

    def complete(self) -> None:
        """From here on, what comes to one of them and cannot be had is told in the log, and left out."""
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
        """Have it, unless it is there already by another way. Raises DeclarationError when something else is."""
        if isinstance(item, Primitive):
            taken: Primitive | None = self._places()[item.kind].get(item.key)
            if taken is not None and taken.origin is item.origin:
                return False
        elif (known := self.completers.get((item.target, item.argument))) and known.handler is item.handler:
            return False
        self._place(item)
        return True

    def refuse(self, text: str, source: str) -> None:
        """Something cannot be had. Raises DeclarationError if this one is strict and not yet complete."""
        if self.strict and not self._is_complete:
            raise DeclarationError(text)
        self.problems.append(Problem(text, source, "Give one of the two another name, or another prefix."))
        if self._is_complete:
            logger.warning("%s; the earlier one is served", text)


Take = Callable[[Any], Any]
"""Makes of what one registry has what another has of it. Raises DeclarationError."""


class Methods:
    """Methods that the decorators marked, until their class turns out to be a Toolset, which registers them."""

    def __init__(self) -> None:
        # By identity: what else stands in a class need not be hashable.
        self._waiting: dict[int, tuple[Any, str]] = {}

    def add(self, function: Any, source: str) -> None:
        self._waiting[id(function)] = function, source

    def claim(self, cls: type) -> None:
        """`cls` is a Toolset, and serves what its plain base classes mark, too."""
        for base in cls.__mro__:
            for value in vars(base).values():
                self._waiting.pop(id(getattr(value, "__func__", value)), None)

    def problems(self) -> list[Problem]:
        """Those that nobody will ever serve."""
        text = "{} is marked as a method of a toolset, but its class is not a Toolset"
        hint = "Let the class inherit from mcp_django.Toolset, or move the function out of it."
        return [Problem(text.format(source), source, hint) for _, source in self._waiting.values()]


METHODS = Methods()

REGISTRIES: dict[str, Registry] = {}
"""What `mcp_tools.py` modules registered, by server alias."""


def registry_for(alias: str) -> Registry:
    """The registry of a server alias, made at its first use."""
    if alias not in REGISTRIES:
        REGISTRIES[alias] = Registry(alias, strict=False)
    return REGISTRIES[alias]


def problems() -> list[Problem]:
    """Every declaration that was refused, for the system checks."""
    for registry in REGISTRIES.values():
        registry.settle()
    return [problem for registry in REGISTRIES.values() for problem in registry.problems] + METHODS.problems()
