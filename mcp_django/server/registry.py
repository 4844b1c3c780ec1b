"""What has been registered, by name and in order; the static provider.

Every decorator that is not given a server adds to the registry of an alias, so that `mcp_tools.py` needs no server
object; the server of that alias serves it. Names are unique: the second of two is refused, and both sources are
named.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from ..schema import DeclarationError, natively
from .primitives import Completer, Primitive, Prompt, Resource, ResourceTemplate, Tool

P = TypeVar("P", bound=Primitive)
Kind = Literal["tool", "resource", "template", "prompt"]


@dataclass(frozen=True, slots=True)
class Problem:
    """A declaration that could not be registered. A system check reports it."""

    text: str
    source: str
    hint: str = "Mend the declaration, or give one of the two another name."


class Collection(Generic[P]):
    """Primitives of one kind by key, listed in the order of their keys, which cursors build on."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._items: dict[str, P] = {}
        self._sorted: list[P] | None = None
        self._changed = changed

    def add(self, item: P) -> None:
        """Raises DeclarationError when the key is taken."""
        taken = self._items.get(item.key)
        if taken is not None:
            raise DeclarationError(f"{item.kind} {item.key!r} of {item.source} is already registered by {taken.source}")
        self._items[item.key] = item
        self._reset()

    def remove(self, key: str) -> P | None:
        """Take it out; None when it was not there."""
        item = self._items.pop(key, None)
        self._reset()
        return item

    def get(self, key: str) -> P | None:
        return self._items.get(key)

    def sorted(self) -> list[P]:
        """All of them, in the order of their keys."""
        if self._sorted is None:
            self._sorted = [self._items[key] for key in sorted(self._items)]
        return self._sorted

    def _reset(self) -> None:
        self._sorted = None
        self._changed()

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
        self.version = 0
        self.problems: list[Problem] = []
        self.tools: Collection[Tool] = Collection(self._changed)
        self.resources: Collection[Resource] = Collection(self._changed)
        self.templates: Collection[ResourceTemplate] = Collection(self._changed)
        self.prompts: Collection[Prompt] = Collection(self._changed)
        self.completers: dict[tuple[str, str], Completer] = {}
        self.toolsets: list[Any] = []
        """Instances of the toolset classes registered here; the server enters their lifespans."""

    def _changed(self) -> None:
        self.version += 1

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
                self._changed()

    def remove(self, kind: Kind, key: str) -> bool:
        """Take one out, with its completions. False when it was not there; raises ValueError for another kind."""
        places: dict[str, Collection[Any]] = {
            "tool": self.tools,
            "resource": self.resources,
            "template": self.templates,
            "prompt": self.prompts,
        }
        if kind not in places:
            raise ValueError(f"There are {', '.join(places)}, but no {kind!r}")
        if key not in places[kind]:
            return False
        if kind in ("template", "prompt"):
            self.completers = {place: item for place, item in self.completers.items() if place[0] != key}
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
    return [problem for registry in REGISTRIES.values() for problem in registry.problems] + METHODS.problems()
