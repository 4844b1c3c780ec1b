"""Actions of a view: the actions of a viewset, or the HTTP methods of other views.

A viewset is inspected like DRF's routers do (`rest_framework.routers.SimpleRouter`). The class is not called or
modified.
"""

import difflib
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rest_framework import mixins
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSetMixin

from mcp_django.schema import DeclarationError
from mcp_django.server.injection.handler import source_of

STANDARD = {
    "list": ("get", False),
    "create": ("post", False),
    "retrieve": ("get", True),
    "update": ("put", True),
    "partial_update": ("patch", True),
    "destroy": ("delete", True),
}
"""Standard actions of routers: the HTTP method, and True if they apply to one row."""
SAFE = ("list", "retrieve")
"""Actions that are exposed by default."""
ALL = "__all__"
METHODS = ("get", "post", "put", "patch", "delete")
"""HTTP methods that become tools.

HEAD and OPTIONS would add nothing to a list of tools.
"""
_GENERIC = (
    ("get", mixins.ListModelMixin, "list"),
    ("get", mixins.RetrieveModelMixin, "retrieve"),
    ("post", mixins.CreateModelMixin, "create"),
    ("put", mixins.UpdateModelMixin, "update"),
    ("patch", mixins.UpdateModelMixin, "partial_update"),
    ("delete", mixins.DestroyModelMixin, "destroy"),
)


@dataclass(frozen=True, slots=True, eq=False)
class Subject:
    """View that was passed to `expose`."""

    cls: type[Any]
    """View class; for a function the class created by `@api_view`."""
    callback: Callable[..., Any] | None = None
    """Function made by `as_view` or `@api_view`; None if a class was passed."""
    initkwargs: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of `as_view`."""
    actions: Mapping[str, str] | None = None
    """Method → action, if they were passed to a viewset's `as_view`."""

    @classmethod
    def of(cls, view: Any) -> "Subject":
        """Inspect an argument of `expose`.

        Raises:
            DeclarationError: the argument is not a DRF view.
        """
        if isinstance(view, type) and issubclass(view, APIView):
            return cls(view)
        made_of = getattr(view, "cls", None)
        if callable(view) and isinstance(made_of, type) and issubclass(made_of, APIView):
            return cls(made_of, view, dict(getattr(view, "initkwargs", {})), getattr(view, "actions", None))
        raise DeclarationError(
            f"{source_of(view) if callable(view) else repr(view)}: expose() takes an APIView or viewset class, a "
            "function of @api_view, or the result of as_view()"
        )

    @property
    def is_viewset(self) -> bool:
        """Return True if the view is a viewset."""
        return issubclass(self.cls, ViewSetMixin)

    @property
    def name(self) -> str:
        """Return the dotted name for messages."""
        return f"{self.cls.__module__}.{self.cls.__qualname__}"

    @property
    def model(self) -> Any:
        """Return the model of the view's rows, or None if unknown."""
        queryset = self.initkwargs.get("queryset", getattr(self.cls, "queryset", None))
        model = getattr(queryset, "model", None)
        serializer = self.initkwargs.get("serializer_class", getattr(self.cls, "serializer_class", None))
        return model or getattr(getattr(serializer, "Meta", None), "model", None)


@dataclass(frozen=True, slots=True, eq=False)
class Action:
    """Action of a view: an HTTP method and the function that handles it."""

    key: str
    """Name in `actions=`, and suffix of the tool's name."""
    name: str
    """Name of the function on the class."""
    method: str
    """HTTP method in lower case."""
    detail: bool | None
    """True if the action applies to one row; None if that depends on the route."""
    function: Callable[..., Any]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of `@action` for the view."""
    is_extra: bool = False
    """True if the action was declared with `@action`."""

    @property
    def is_reading(self) -> bool:
        """Return True if the action only reads."""
        return self.method == "get"

    @property
    def is_stock(self) -> bool:
        """Return True if the function is DRF's own, so that its response is known."""
        return self.function.__module__.startswith("rest_framework.")


def actions_of(subject: Subject) -> dict[str, Action]:
    """Return all actions of a view by key."""
    found = list(_of_viewset(subject) if subject.is_viewset else _of_view(subject))
    times = Counter(action.name for action in found)
    if subject.is_viewset:
        found = [action if times[action.name] == 1 else _by_method(action) for action in found]
    return {action.key: action for action in found}


def select(subject: Subject, wanted: Sequence[str] | str | None) -> list[Action]:
    """Return the actions that `actions=` selects.

    Raises:
        DeclarationError: a name is unknown, or nothing is selected.
    """
    known = actions_of(subject)
    if wanted is None:
        chosen = [action for action in known.values() if action.is_reading and _is_safe(subject, action)]
        if not chosen:
            raise DeclarationError(
                f"{subject.name} has no reading actions; name the actions to expose: actions={sorted(known)}"
            )
        return chosen

    if wanted == ALL:
        return list(known.values())
    if isinstance(wanted, str):
        raise DeclarationError(f'{subject.name}: actions is a list or "__all__"; write actions=[{wanted!r}]')

    chosen = []
    for name in wanted:
        meant = [action for action in known.values() if name in (action.key, action.name)]
        if not meant:
            close = difflib.get_close_matches(str(name), known, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else f"; it has {', '.join(sorted(known))}"
            raise DeclarationError(f"{subject.name} has no action {name!r}{hint}")
        chosen += [action for action in meant if action not in chosen]

    return chosen


def default_prefix(subject: Subject, actions: Sequence[Action]) -> str:
    """Return the prefix of tool names.

    It is the model's name before standard actions, else the view's name.
    """
    model = subject.model
    if model is not None and (subject.is_viewset or all(action.key in STANDARD for action in actions)):
        return f"{model._meta.model_name}_"
    return f"{view_name(subject)}_"


def view_name(subject: Subject) -> str:
    """Return the view's name for tool names: `BookViewSet` becomes "book"."""
    name = re.sub(r"(ViewSet|APIView|View)$", "", subject.cls.__name__) or subject.cls.__name__
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def _of_viewset(subject: Subject) -> "list[Action]":
    cls = subject.cls
    extra = {name: function for function in cls.get_extra_actions() for name in function.mapping.values()}
    if subject.actions is not None:
        pairs = [(method, name) for method, name in subject.actions.items() if method in METHODS]
    else:
        pairs = [(method, name) for name, (method, _) in STANDARD.items() if hasattr(cls, name)]
        for function in cls.get_extra_actions():
            pairs += [(method, name) for method, name in function.mapping.items() if method in METHODS]
    allowed = cls.http_method_names
    return [_viewset_action(cls, method, name, extra.get(name)) for method, name in pairs if method in allowed]


def _viewset_action(cls: type[Any], method: str, name: str, declared: Any) -> Action:
    function = getattr(cls, name)
    if declared is None:
        return Action(name, name, method, STANDARD[name][1] if name in STANDARD else None, function)
    return Action(name, name, method, declared.detail, function, dict(declared.kwargs), is_extra=True)


def _by_method(action: Action) -> Action:
    """Add the method to the key of an action with several methods."""
    key = f"{action.name}_{action.method}"
    return Action(key, action.name, action.method, action.detail, action.function, action.kwargs, action.is_extra)


def _of_view(subject: Subject) -> "list[Action]":
    cls = subject.cls
    methods = [method for method in METHODS if method in cls.http_method_names and hasattr(cls, method)]
    return [Action(_verb(cls, method), method, method, None, _answering(cls, method)) for method in methods]


def _verb(cls: type[Any], method: str) -> str:
    """Return the action of a generic view's method, else the method itself."""
    return next((verb for m, mixin, verb in _GENERIC if m == method and issubclass(cls, mixin)), method)


def _answering(cls: type[Any], method: str) -> Any:
    """Return the function behind a method.

    DRF's generic `get` only calls `list`, which the project may override.
    """
    function, verb = getattr(cls, method), _verb(cls, method)
    return getattr(cls, verb, function) if function.__module__.startswith("rest_framework.") else function


def _is_safe(subject: Subject, action: Action) -> bool:
    return action.key in SAFE if subject.is_viewset else True
