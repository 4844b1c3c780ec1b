"""Toolset of drf-spectacular's document; calls go to the views without HTTP."""

import functools
import threading
from collections.abc import Callable
from typing import Any, cast
from weakref import WeakKeyDictionary

from django.http import HttpRequest
from rest_framework.views import APIView

from mcp_django.contrib.openapi import OpenAPIToolset
from mcp_django.contrib.rest.actions import ExposedView
from mcp_django.contrib.rest.requests.preparation import Prepare, load_prepare, prepare_request
from mcp_django.contrib.rest.routes import find_foreign_decorators
from mcp_django.contrib.rest.tools import run_off_loop
from mcp_django.contrib.rest.views import build_callback
from mcp_django.extensions.errors import DeclarationError, ToolError

View = Callable[..., Any]


def from_spectacular(
    document: Any = None,
    *,
    urlconf: str | None = None,
    api_version: str | None = None,
    root: str = "",
    decorated: bool = False,
    prepare: Prepare | str | None = None,
    **options: Any,
) -> OpenAPIToolset:
    """Make tools of the DRF views that drf-spectacular documents.

        register(from_spectacular(prefix="shop", routes=[Route("GET *"), Route(expose=None)]))

    The document is generated once the project is complete, for `urlconf` and `api_version`. Alternatively `document` is
    given, in a form that OpenAPIToolset accepts. `root` is the prefix of its paths if SCHEMA_PATH_PREFIX_TRIM is set.

    A call is a request to the view, authenticated as the call's principal. Then the view's own permissions, throttles,
    parsers and filters apply, as with `expose`. `decorated` accepts that decorators around routed views do not run for
    calls. `prepare` is a function of the view's request, as of `expose`. All other options are those of OpenAPIToolset.
    """
    factory = _PrincipalViewFactory(decorated=decorated, prepare=load_prepare(prepare, "from_spectacular()"))
    if document is None:
        document = functools.partial(run_off_loop, functools.partial(_generate_document, urlconf, api_version))
    return OpenAPIToolset.from_urlconf(document, root=root, prepare=factory, **options)


def _generate_document(urlconf: str | None, api_version: str | None) -> object:
    try:
        from drf_spectacular.drainage import GENERATOR_STATS
        from drf_spectacular.generators import SchemaGenerator
    except ImportError:
        raise DeclarationError(
            "from_spectacular() needs drf-spectacular; install it, or give the document: from_spectacular(path)"
        ) from None
    generator: Any = SchemaGenerator
    with GENERATOR_STATS.silence():
        return generator(urlconf=urlconf, api_version=api_version).get_schema(request=None, public=True)


class _PrincipalViewFactory:
    """Factory of views that authenticate requests as the call's principal."""

    def __init__(self, *, decorated: bool, prepare: Prepare | None) -> None:
        self._decorated = decorated
        self._prepare = prepare
        self._views: WeakKeyDictionary[View, View] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def __call__(self, view: View) -> View:
        cls = getattr(view, "cls", None)
        if not (isinstance(cls, type) and issubclass(cls, APIView)):
            return view
        with self._lock:
            found = self._views.get(view)
            if found is None:
                found = self._views[view] = self._build_view(view)
        return found

    def _build_view(self, view: View) -> View:
        subject = ExposedView.from_view(view)
        principal_view: Any = build_callback(subject, subject.actions or {}, subject.initkwargs)
        foreign = [] if self._decorated else find_foreign_decorators(view, principal_view)
        if foreign:
            raise ToolError(
                f"This view is decorated with {', '.join(foreign)} where it is routed, and calls would bypass that; "
                "the project must decorate the class, or set decorated=True"
            )

        non_atomic_databases = {
            name for one in (view, principal_view) for name in getattr(one, "_non_atomic_requests", ())
        }
        prepared_view: Any = principal_view if self._prepare is None else _wrap_view(principal_view, self._prepare)
        prepared_view._non_atomic_requests = non_atomic_databases
        return cast("View", prepared_view)


def _wrap_view(view: View, prepare: Prepare) -> View:
    """Return the view with a prepared request; its response is rendered before a context manager exits."""

    @functools.wraps(view)
    def call_prepared(request: HttpRequest, *args: object, **kwargs: object) -> object:
        with prepare_request(prepare, request):
            response = view(request, *args, **kwargs)
            return response.render() if getattr(response, "is_rendered", True) is False else response

    return call_prepared
