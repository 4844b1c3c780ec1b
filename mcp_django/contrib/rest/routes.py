"""Routes of a view: paths, captured arguments, and options of `as_view`.

The route determines a view's behavior: permissions (`as_view(permission_classes=…)`), captured arguments, and
namespaces that select versions. Links in responses are built from its path. The URLconf is read when a tool is first
listed or called, because `mcp_tools.py` is imported before it.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.http import Http404
from django.urls import ResolverMatch, URLPattern, URLResolver, get_resolver, get_urlconf
from django.urls.converters import IntConverter, UUIDConverter
from django.urls.exceptions import Resolver404
from django.urls.resolvers import LocalePrefixPattern
from django.utils.regex_helper import normalize

from mcp_django.contrib.rest.actions import ViewAction
from mcp_django.extensions.schemas import JSONMapping, JSONObject

HARMLESS_MODULES = ("django.views.decorators.", "django.utils.decorators", "rest_framework.")
"""Modules whose decorators around a routed view do not control access.

Examples are caching, CSRF and compression.
"""
ROUTER_KWARGS = frozenset({"basename", "description", "detail", "name", "suffix"})
"""Arguments that routers add to the view's own options in `as_view`."""


@dataclass(frozen=True, slots=True, eq=False)
class ViewRoute:
    """URL pattern that leads to a DRF view."""

    chain: tuple[Any, ...]
    """Patterns from the root's children down to its own."""
    name: str
    """Name with namespaces, as `reverse()` expects it; "" without a name."""
    namespace: str
    callback: Callable[..., Any]
    arguments: Mapping[str, JSONObject] = field(default_factory=dict)
    """Captured arguments, each with a schema."""

    @property
    def initkwargs(self) -> JSONMapping:
        """Return the keyword arguments of `as_view`."""
        return getattr(self.callback, "initkwargs", {})

    @property
    def actions(self) -> Mapping[str, str]:
        """Return the mapping of methods to actions of a viewset, or {}."""
        return getattr(self.callback, "actions", None) or {}

    def has_name(self, name: str) -> bool:
        """Return True if `name` is the route's name, namespace or basename.

        The basename is qualified by the namespace.
        """
        basename = ":".join(part for part in (self.namespace, self.initkwargs.get("basename")) if part)
        return name in {self.name, self.namespace, basename} - {""}

    def match(self, kwargs: JSONMapping) -> tuple[str, ResolverMatch]:
        """Return the path for these values and its resolver match.

        The path is below the script's prefix.

        Raises:
            Http404: over HTTP no path with these values leads to this route.
        """

        given = {name: to_path_text(value) for name, value in kwargs.items()}
        for template, names in _get_templates(self.chain):
            if set(names) != given.keys():
                continue
            path = f"/{template % given}"
            try:
                match = get_resolver(get_urlconf()).resolve(path)
            except Resolver404:
                continue
            if match.func is self.callback and _is_captured_as_given(given, match.kwargs):
                return path, match

        raise Http404("Not found.")


def _is_captured_as_given(given: Mapping[str, str], captured: JSONMapping) -> bool:
    """Return True if the path captures each text as it was given.

    In `<path:tenant>/files/<path:name>`, a name that contains "/files/" would become part of the tenant. Converted
    values need no check, because a converter consumes the whole value.
    """
    return all(not isinstance(value := captured.get(name), str) or value == text for name, text in given.items())


def to_path_text(value: object) -> str:
    """Return a value as path text; JSON may encode an integer as 1.0."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _get_templates(chain: tuple[Any, ...]) -> list[tuple[str, list[str]]]:
    if any(isinstance(pattern, LocalePrefixPattern) for pattern in chain):
        return _normalize_patterns(chain)  # not cached, because the path contains the active language
    return _get_cached_templates(chain)


def _normalize_patterns(chain: tuple[Any, ...]) -> list[tuple[str, list[str]]]:
    # Same method as URLResolver._populate, over all levels at once.
    regex = "".join(pattern.regex.pattern.removeprefix("^") for pattern in chain)
    return [(template, names) for template, names in normalize(regex)]


_get_cached_templates = lru_cache(maxsize=1024)(_normalize_patterns)


def find_route(action: ViewAction, name: str = "") -> ViewRoute | None:
    """Return the first route to an action, with the given name if there is one.

    Raises:
        ImproperlyConfigured: the name is unknown, or several routes differ in the view's options.
    """
    subject, routes = action.subject, _find_routes(action)
    # Ignore the routes that format_suffix_patterns() adds.
    routes = [route for route in routes if "format" not in route.arguments] or routes

    if name:
        routes = [route for route in routes if route.has_name(name)]
        if not routes:
            raise ImproperlyConfigured(f"No route called {name!r} leads to {subject.name}.{action.name}")
    if not routes:
        return None

    options = [_get_view_kwargs(route) for route in routes]
    if subject.callback is None and any(other != options[0] for other in options):
        names = ", ".join(repr(route.name or route.namespace) for route in routes)
        raise ImproperlyConfigured(
            f"Routes to {subject.name}.{action.name} have different options of as_view(); choose one with route= "
            f"({names})"
        )
    return routes[0]


def map_namespaces(action: ViewAction, reference: ViewRoute) -> dict[str, ViewRoute]:
    """Return the routes to an action by each of their namespaces.

    Namespaces are versions under NamespaceVersioning. Only routes with the same view and options as `reference` are
    included, because calls go to that view.
    """
    found: dict[str, ViewRoute] = {}
    for route in _find_routes(action):
        if route is reference or _has_equal_view(route, reference):
            for part in route.namespace.split(":") if route.namespace else ():
                found.setdefault(part, route)
    return found


def _has_equal_view(one: ViewRoute, other: ViewRoute) -> bool:
    return _get_view_kwargs(one) == _get_view_kwargs(other) and not find_foreign_decorators(
        one.callback, other.callback
    )


def _get_view_kwargs(route: ViewRoute) -> JSONObject:
    return {name: value for name, value in route.initkwargs.items() if name not in ROUTER_KWARGS}


def _find_routes(action: ViewAction) -> list[ViewRoute]:
    """Return the routes to an action: those of its own callback, else those of its class."""
    subject = action.subject
    routes = _index_routes(get_resolver(get_urlconf())).get(subject.cls, [])
    routes = [route for route in routes if not subject.is_viewset or route.actions.get(action.method) == action.name]
    return [route for route in routes if route.callback is subject.callback] or routes


@lru_cache(maxsize=16)
def _index_routes(resolver: URLResolver) -> dict[type[Any], list[ViewRoute]]:
    found: dict[type[Any], list[ViewRoute]] = {}
    for route in _iter_routes(resolver.url_patterns, (), ()):
        found.setdefault(route.callback.cls, []).append(route)  # type: ignore[attr-defined]
    return found


def _iter_routes(patterns: Any, above: tuple[Any, ...], namespaces: tuple[str, ...]) -> Iterator[ViewRoute]:
    for pattern in patterns:
        chain = (*above, pattern.pattern)
        if isinstance(pattern, URLResolver):
            inner = (*namespaces, pattern.namespace) if pattern.namespace else namespaces
            yield from _iter_routes(pattern.url_patterns, chain, inner)
        elif isinstance(pattern, URLPattern) and isinstance(getattr(pattern.callback, "cls", None), type):
            name = ":".join((*namespaces, pattern.name)) if pattern.name else ""
            yield ViewRoute(chain, name, ":".join(namespaces), pattern.callback, _collect_captures(chain))


def _collect_captures(chain: tuple[Any, ...]) -> dict[str, JSONObject]:
    """Return the captured arguments by name, with the schemas of their converters."""
    found: dict[str, JSONObject] = {}
    for pattern in chain:
        converters = getattr(pattern, "converters", {})
        for name in pattern.regex.groupindex:
            found[name] = _get_converter_schema(converters.get(name))
    return found


def _get_converter_schema(converter: object) -> JSONObject:
    if isinstance(converter, IntConverter):
        return {"type": "integer", "minimum": 0}
    if isinstance(converter, UUIDConverter):
        return {"type": "string", "format": "uuid"}
    return {}


def find_foreign_decorators(routed: Callable[..., Any], reference: Callable[..., Any]) -> list[str]:
    """Return the decorators of a routed view that calls would bypass.

    Calls go to a newly created view. Decorators that this view has too, and harmless ones, are ignored.
    """
    known = Counter(function.__code__ for function in _iter_layers(reference))
    decorators = []
    for function in _iter_layers(routed):
        code = function.__code__
        if known[code]:
            known[code] -= 1
        elif not str(function.__globals__.get("__name__", "")).startswith(HARMLESS_MODULES):
            decorators.append(f"{function.__globals__.get('__name__')}.{code.co_qualname}")
    return decorators


def _iter_layers(function: object) -> Iterator[Any]:
    seen: set[int] = set()
    while hasattr(function, "__code__") and id(function) not in seen:
        seen.add(id(function))
        yield function
        function = getattr(function, "__wrapped__", None)
