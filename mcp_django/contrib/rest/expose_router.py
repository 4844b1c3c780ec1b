"""`expose_router`: make tools of all views of a router."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal, Unpack, cast

from django.urls import URLPattern, URLResolver
from django.utils.module_loading import import_string
from rest_framework.routers import APIRootView
from rest_framework.views import APIView

from mcp_django.contrib.rest.actions import ALL_ACTIONS, ExposedView, ViewAction, get_view_name, list_actions
from mcp_django.contrib.rest.expose import OPTIONS_BY_ACTION, ExposeOptions, ViewExposeOptions, register_view
from mcp_django.extensions.calls import Server
from mcp_django.extensions.errors import DeclarationError
from mcp_django.extensions.primitives import Registry, check_option_names, get_registry

_SEPARATORS = re.compile(r"[^A-Za-z0-9]+")


@dataclass(frozen=True, slots=True)
class _RoutedView:
    """View of a router's URL pattern."""

    callback: Any
    basename: str

    def is_named_by(self, entry: str | type[Any]) -> bool:
        """Return True if an entry of `exclude` names the view, by its class or basename."""
        return self.callback.cls is entry or (isinstance(entry, str) and fnmatchcase(self.basename, entry))


@dataclass(frozen=True, slots=True, kw_only=True)
class _RouterSelection:
    """Views and actions of a router that become tools."""

    router: Any
    actions: Sequence[str] | Literal["__all__"] | None
    read_only: bool
    exclude: Sequence[str | type[Any]]

    def list_actions(self) -> list[tuple[_RoutedView, ViewAction]]:
        """Return the selected actions with their views.

        Raises:
            DeclarationError: the router cannot be read, has no view, or has none that an option names.
        """
        views = list({id(view.callback): view for view in _iter_views(_load_patterns(self.router), ())}.values())
        if not views:
            raise DeclarationError("the router has no view; register views with it")
        for entry in self.exclude:
            if not any(view.is_named_by(entry) for view in views):
                names = ", ".join(sorted({view.basename for view in views}))
                raise DeclarationError(f"exclude names {entry!r}, which no view of the router has; it has {names}")

        routed = [
            (view, action)
            for view in views
            if not any(view.is_named_by(entry) for entry in self.exclude)
            for action in list_actions(ExposedView.from_view(view.callback)).values()
        ]
        # A view may be routed at several paths.
        distinct = {(view.callback.cls, view.basename, action.key): (view, action) for view, action in reversed(routed)}
        return [pair for pair in reversed(distinct.values()) if self._selects(pair[1])]

    def _selects(self, action: ViewAction) -> bool:
        if not action.is_reading and self.read_only:
            return False
        if self.actions is None:
            return not action.is_extra
        return self.actions == ALL_ACTIONS or action.key in self.actions or action.name in self.actions


def expose_router(
    router: object,
    *,
    server: str | Server = "default",
    actions: Sequence[str] | Literal["__all__"] | None = None,
    read_only: bool = True,
    exclude: Sequence[str | type[Any]] = (),
    prefix: str = "",
    **options: Unpack[ViewExposeOptions],
) -> None:
    """Make tools of all views of a router.

        expose_router(router)
        expose_router("shop.api.router", read_only=False, exclude=["token", "internal-*"], prefix="shop_")

    `router` is a router of Django REST framework, another object whose `urls` are URL patterns of such views, or its
    dotted path. It is read once the project is complete. Views may be registered with it until then.

    Only reading is exposed, unless `read_only` is False. `actions` selects actions by name, in the views that have
    them. The default is all actions but those of `@action`. "__all__" selects these as well. `exclude` leaves out views
    by basename, by a pattern of basenames, or by class.

    A tool is called `<prefix><basename>_<action>`. All other options are those of `expose`, for each view. Mappings by
    action apply to the views that have the action. A view that cannot be exposed is reported, and takes no other away.
    """
    check_option_names("expose_router()", options, ViewExposeOptions)
    selection = _RouterSelection(router=router, actions=actions, read_only=read_only, exclude=tuple(exclude))
    registry = server.registry if isinstance(server, Server) else get_registry(server)
    registry.defer(lambda: _register_router(registry, selection, prefix, options))


def _register_router(registry: Registry, selection: _RouterSelection, prefix: str, options: ViewExposeOptions) -> None:
    problems: list[DeclarationError] = []
    with registry.collect_errors(f"expose_router({selection.router!r})"):
        selected = selection.list_actions()
        _check_action_names(selection, options, [action for _, action in selected])
        for view, action in selected:
            try:
                register_view(registry, view.callback, _build_options(view, action, prefix, options))
            except DeclarationError as problem:
                problems.append(problem)  # of a strict registry; the other tools do not depend on it
        if problems:
            raise problems[0]


def _load_patterns(router: object) -> Any:
    """Return the URL patterns of a router, or of the tuple that `include()` takes.

    Raises:
        DeclarationError: the router cannot be imported, or has no URL patterns.
    """
    if isinstance(router, str):
        try:
            router = import_string(router)
        except ImportError as problem:
            raise DeclarationError(f"the router cannot be imported: {problem}") from problem
    patterns = getattr(router, "urls", None)
    patterns = patterns[0] if isinstance(patterns, tuple) else patterns
    if not isinstance(patterns, Sequence) or isinstance(patterns, str):
        raise DeclarationError("a router has URL patterns as its urls; give a router, or its dotted path")
    return patterns


def _iter_views(patterns: Iterable[Any], namespaces: tuple[str, ...]) -> Iterator[_RoutedView]:
    for pattern in patterns:
        if isinstance(pattern, URLResolver):
            inner = (*namespaces, pattern.namespace) if pattern.namespace else namespaces
            yield from _iter_views(pattern.url_patterns, inner)
        elif isinstance(pattern, URLPattern):
            cls = getattr(pattern.callback, "cls", None)
            if isinstance(cls, type) and issubclass(cls, APIView) and not issubclass(cls, APIRootView):
                basename = getattr(pattern.callback, "initkwargs", {}).get("basename") or "_".join(namespaces)
                yield _RoutedView(pattern.callback, basename or get_view_name(ExposedView.from_view(pattern.callback)))


def _check_action_names(
    selection: _RouterSelection, options: ViewExposeOptions, selected: Sequence[ViewAction]
) -> None:
    """Check that each action that an option names is selected in one view at least."""
    if isinstance(selection.actions, str) and selection.actions != ALL_ACTIONS:
        raise DeclarationError(f'actions is a list or "__all__"; write actions=[{selection.actions!r}]')
    keys = {name for action in selected for name in (action.key, action.name)}
    named: dict[str, Iterable[str]] = {"actions": () if isinstance(selection.actions, str) else selection.actions or ()}
    for option in OPTIONS_BY_ACTION:
        value: Any = options.get(option)
        named[option] = value if isinstance(value, Mapping) else ()
    for option, names in named.items():
        for name in names:
            if name not in keys:
                more = "; actions that write need read_only=False" if selection.read_only else ""
                raise DeclarationError(f"{option} names {name!r}, but no view has this action selected{more}")


def _build_options(view: _RoutedView, action: ViewAction, prefix: str, options: ViewExposeOptions) -> ExposeOptions:
    """Return the options of `expose` for one action of a view."""
    built: Any = dict(options)
    for option in OPTIONS_BY_ACTION:
        if isinstance(by_action := built.get(option), Mapping):
            built[option] = {name: value for name, value in by_action.items() if name in (action.key, action.name)}
    basename = _SEPARATORS.sub("_", view.basename).strip("_")
    return cast("ExposeOptions", {**built, "actions": [action.key], "prefix": f"{prefix}{basename}_"})
