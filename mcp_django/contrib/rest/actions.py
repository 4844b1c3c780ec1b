"""Actions of a view: the actions of a viewset, or the HTTP methods of other views.

A viewset is inspected like DRF's routers do (`rest_framework.routers.SimpleRouter`). The class is not called or
modified.
"""

import difflib
import inspect
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rest_framework import mixins
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSetMixin

from mcp_django.contrib.http_tools.tools import HTTP_METHODS
from mcp_django.extensions.errors import DeclarationError
from mcp_django.extensions.primitives import describe_source
from mcp_django.extensions.schemas import JSONMapping

STANDARD_ACTIONS = {
    "list": ("get", False),
    "create": ("post", False),
    "retrieve": ("get", True),
    "update": ("put", True),
    "partial_update": ("patch", True),
    "destroy": ("delete", True),
}
"""Standard actions of routers: the HTTP method, and True if they apply to one row."""
DEFAULT_ACTIONS = ("list", "retrieve")
"""Actions that are exposed by default."""
ALL_ACTIONS = "__all__"
_GENERIC_VIEW_METHODS = (
    ("get", mixins.ListModelMixin, "list"),
    ("get", mixins.RetrieveModelMixin, "retrieve"),
    ("post", mixins.CreateModelMixin, "create"),
    ("put", mixins.UpdateModelMixin, "update"),
    ("patch", mixins.UpdateModelMixin, "partial_update"),
    ("delete", mixins.DestroyModelMixin, "destroy"),
)


@dataclass(frozen=True, slots=True, eq=False)
class ExposedView:
    """View that was passed to `expose`."""

    cls: type[Any]
    """View class; for a function the class created by `@api_view`."""
    callback: Callable[..., Any] | None = None
    """Function made by `as_view` or `@api_view`; None if a class was passed."""
    initkwargs: JSONMapping = field(default_factory=dict)
    """Keyword arguments of `as_view`."""
    actions: Mapping[str, str] | None = None
    """Method → action, if they were passed to a viewset's `as_view`."""

    @classmethod
    def from_view(cls, view: object) -> "ExposedView":
        """Inspect an argument of `expose`.

        Raises:
            DeclarationError: the argument is not a DRF view.
        """
        if isinstance(view, type) and issubclass(view, APIView):
            return cls(view)
        view_class = getattr(view, "cls", None)
        if callable(view) and isinstance(view_class, type) and issubclass(view_class, APIView):
            return cls(view_class, view, dict(getattr(view, "initkwargs", {})), getattr(view, "actions", None))
        raise DeclarationError(
            f"{describe_source(view) if callable(view) else repr(view)}: expose() takes an APIView or viewset class, a "
            "function of @api_view, or the result of as_view()"
        )

    @property
    def is_viewset(self) -> bool:
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
class ViewAction:
    """Action of a view: an HTTP method and the function that handles it."""

    subject: ExposedView
    key: str
    """Name in `actions=`, and suffix of the tool's name."""
    name: str
    """Name of the function on the class."""
    method: str
    """HTTP method in lower case."""
    is_detail: bool | None
    """True if the action applies to one row; None if that depends on the route."""
    function: Callable[..., Any]
    kwargs: JSONMapping = field(default_factory=dict)
    """Keyword arguments of `@action` for the view."""
    is_extra: bool = False
    """True if the action was declared with `@action`."""

    @property
    def is_reading(self) -> bool:
        """Return True if the action only reads."""
        return self.method == "get"

    @property
    def is_drf_method(self) -> bool:
        """Return True if the function is DRF's own, so that its response is known."""
        return self.function.__module__.startswith("rest_framework.")


def list_actions(subject: ExposedView) -> dict[str, ViewAction]:
    """Return all actions of a view by key."""
    actions = _list_viewset_actions(subject) if subject.is_viewset else _list_view_actions(subject)
    return {action.key: action for action in actions}


def select_actions(subject: ExposedView, names: Sequence[str] | str | None) -> list[ViewAction]:
    """Return the actions that `actions=` selects.

    Raises:
        DeclarationError: a name is unknown, or nothing is selected.
    """
    actions = list_actions(subject)
    if not actions:
        raise DeclarationError(_explain_lack_of_actions(subject))
    if names is None:
        readers = [action for action in actions.values() if action.is_reading]
        chosen = [action for action in readers if not subject.is_viewset or action.key in DEFAULT_ACTIONS]
        if not chosen:
            raise DeclarationError(
                f"{subject.name} has no reading actions; name the actions to expose: actions={sorted(actions)}"
            )
        return chosen

    if names == ALL_ACTIONS:
        return list(actions.values())
    if isinstance(names, str):
        raise DeclarationError(f'{subject.name}: actions is a list or "__all__"; write actions=[{names!r}]')

    chosen = []
    for name in names:
        matches = [action for action in actions.values() if name in (action.key, action.name)]
        if not matches:
            close = difflib.get_close_matches(str(name), actions, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else f"; it has {', '.join(sorted(actions))}"
            raise DeclarationError(f"{subject.name} has no action {name!r}{hint}")
        chosen += [action for action in matches if action not in chosen]

    return chosen


def _explain_lack_of_actions(subject: ExposedView) -> str:
    """Return the text for a view without actions, with its methods that a route could map."""
    cls = subject.cls
    if not subject.is_viewset:
        return f"{subject.name} has no method for {', '.join(HTTP_METHODS)}, so nothing can be exposed"
    if subject.actions is not None:
        return f"{subject.name}.as_view() maps no method that the class allows: {dict(subject.actions)}"
    names = [
        name
        for owner in cls.__mro__
        if not owner.__module__.startswith(("rest_framework.", "django."))
        for name, function in vars(owner).items()
        if inspect.isfunction(function) and list(inspect.signature(function).parameters)[1:2] == ["request"]
    ]
    found = next((name for name in names if not name.startswith("_")), "method")
    return (
        f"{subject.name} has no actions that a router of Django REST framework finds ({', '.join(STANDARD_ACTIONS)}, "
        f"@action); map its methods: expose({cls.__name__}.as_view({{'get': {found!r}}}), actions=[{found!r}])"
    )


def get_default_prefix(subject: ExposedView, actions: Sequence[ViewAction]) -> str:
    """Return the prefix of tool names.

    It is the model's name before standard actions, else the view's name.
    """
    model = subject.model
    if model is not None and (subject.is_viewset or all(action.key in STANDARD_ACTIONS for action in actions)):
        return f"{model._meta.model_name}_"
    return f"{get_view_name(subject)}_"


def get_view_name(subject: ExposedView) -> str:
    """Return the view's name for tool names: `BookViewSet` becomes "book"."""
    name = re.sub(r"(ViewSet|APIView|View)$", "", subject.cls.__name__) or subject.cls.__name__
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def _list_viewset_actions(subject: ExposedView) -> list[ViewAction]:
    cls = subject.cls
    declared = {name: function for function in cls.get_extra_actions() for name in function.mapping.values()}
    if subject.actions is not None:
        pairs = list(subject.actions.items())
    else:
        pairs = [(method, name) for name, (method, _) in STANDARD_ACTIONS.items() if hasattr(cls, name)]
        pairs += [pair for function in cls.get_extra_actions() for pair in function.mapping.items()]
    pairs = [pair for pair in pairs if pair[0] in HTTP_METHODS and pair[0] in cls.http_method_names]

    times = Counter(name for _, name in pairs)
    actions = []
    for method, name in pairs:
        extra, kwargs = declared.get(name), {}
        is_detail = STANDARD_ACTIONS[name][1] if name in STANDARD_ACTIONS else None
        if extra is not None:
            is_detail, kwargs = extra.detail, dict(extra.kwargs)
        key = name if times[name] == 1 else f"{name}_{method}"
        actions.append(
            ViewAction(subject, key, name, method, is_detail, getattr(cls, name), kwargs, is_extra=extra is not None)
        )
    return actions


def _list_view_actions(subject: ExposedView) -> list[ViewAction]:
    """Return an action for each method, named after the action of a generic view if it has one.

    DRF's generic `get` only calls `list`, which the project may override.
    """
    cls, actions = subject.cls, []
    for method in HTTP_METHODS:
        if method in cls.http_method_names and hasattr(cls, method):
            function = getattr(cls, method)
            verb = next((v for m, mixin, v in _GENERIC_VIEW_METHODS if m == method and issubclass(cls, mixin)), method)
            if function.__module__.startswith("rest_framework."):
                function = getattr(cls, verb, function)
            actions.append(ViewAction(subject, verb, method, method, None, function))
    return actions
