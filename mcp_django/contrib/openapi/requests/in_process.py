"""View transport of operations: call views of this project in the same process.

A view gets its own request with the user of the call's principal. Nothing else of the caller is passed on. No cookie
logs in, so CSRF tokens are not required. MIDDLEWARE has processed the outer call and does not run again; attributes
that it set on the outer request are copied. ATOMIC_REQUESTS applies as in Django. A view that authenticates by a token
finds only the values of `credentials=`.
"""

from collections.abc import Callable
from typing import Any, cast
from urllib.parse import unquote

from asgiref.sync import iscoroutinefunction
from django.core.handlers.base import BaseHandler
from django.http import HttpRequest
from django.urls import ResolverMatch, get_resolver, get_script_prefix, get_urlconf, reverse
from django.urls.exceptions import NoReverseMatch, Resolver404

from mcp_django.contrib.http_tools.replies import (
    OperationReply,
    build_error_reply,
    build_exception_reply,
    check_size,
    is_streamed_async,
    read_async_reply,
    read_reply,
)
from mcp_django.contrib.openapi.requests.messages import OperationRequest
from mcp_django.extensions.calls import Context
from mcp_django.extensions.errors import DeclarationError
from mcp_django.extensions.internal_requests import build_request, close_response, copy_user

View = Callable[..., Any]
_WRONG_VIEW_TEXT = "The request reaches another view: change the values in its path"


class ViewTransport:
    """Sends requests to views of the active URLconf."""

    is_remote = False

    def __init__(
        self,
        *,
        root: str = "",
        url_name: str = "",
        namespace: str = "",
        max_size: int,
        prepare: Callable[[View], View] = lambda view: view,
    ) -> None:
        """Set the place of the API in the URLconf.

        The document's paths are below the path `root`, or below the URL named `url_name`. Views must be in `namespace`,
        if given. `prepare` wraps each view before its call. `max_size` is the maximum bytes of an answer.
        """
        self._root = root.rstrip("/")
        self._url_name = url_name
        self._namespace = namespace
        self._max_size = max_size
        self._prepare = prepare

    async def send(self, request: OperationRequest, ctx: Context) -> OperationReply:
        """Call the view and return its answer.

        Raises ToolError for an answer that is too large, and the exceptions of a faulty view.
        """
        run = ctx.server.ports.executor.run
        started = await run(self._start, request, ctx)
        if isinstance(started, OperationReply):
            return started

        view, view_request, match = started
        try:
            response = await view(view_request, *match.args, **match.kwargs)
            if is_streamed_async(response):
                return await read_async_reply(response, view_request, self._max_size)
            return await run(self._read_response, response, view_request)
        except Exception as problem:
            return await run(build_exception_reply, problem, view_request)
        finally:
            await run(close_response, None, view_request)

    def check(self, label: str) -> None:
        """Check that the API is in the URLconf. Raises DeclarationError."""
        try:
            self._get_base_path()
        except NoReverseMatch:
            raise DeclarationError(
                f"{label}: the URL {self._url_name!r} is not in the URLconf, or takes arguments; set root= to the path "
                "of the API"
            ) from None

    async def open(self) -> None:
        """Return at once: a view needs no connection."""

    async def close(self) -> None:
        """Return at once: a view needs no connection."""

    def _start(
        self, outgoing: OperationRequest, ctx: Context
    ) -> OperationReply | tuple[View, HttpRequest, ResolverMatch]:
        """Call a sync view and return its reply; return an async view with its request.

        The caller awaits an async view on the loop.
        """
        path = self._get_base_path() + unquote(outgoing.path)
        try:
            match = get_resolver(get_urlconf()).resolve(path)
        except Resolver404:
            return build_error_reply(404, "Not found.")
        if not self._is_intended_view(match, outgoing):
            return build_error_reply(404, _WRONG_VIEW_TEXT)
        view = BaseHandler().make_view_atomic(self._prepare(match.func))
        view_request = self._build_request(outgoing, path, match, ctx)
        if iscoroutinefunction(view):
            return view, view_request, match
        try:
            response = view(view_request, *match.args, **match.kwargs)
            if is_streamed_async(response):

                async def get_response(*args: Any, **kwargs: Any) -> Any:
                    return response

                return get_response, view_request, match
            return self._read_response(response, view_request)
        except Exception as problem:
            return build_exception_reply(problem, view_request)

    def _get_base_path(self) -> str:
        if not self._url_name:
            return self._root
        found = reverse(self._url_name)
        return f"/{found.removeprefix(get_script_prefix()).strip('/')}".rstrip("/")

    def _is_intended_view(self, match: ResolverMatch, outgoing: OperationRequest) -> bool:
        """Return True if each path argument reached the view as a value."""
        if self._namespace and self._namespace not in match.namespaces:
            return False
        captured = [*(getattr(match, "captured_kwargs", None) or {}).values(), *match.args]
        captured_texts = [str(value) for value in captured]
        unmatched = [text for text in outgoing.path_arguments.values() if "/" in text or text not in captured_texts]
        converted = [value for value in captured if not isinstance(value, str)]
        return len(captured_texts) >= len(outgoing.path_arguments) and all(
            text in captured_texts if "/" in text else bool(converted) for text in unmatched
        )

    def _build_request(self, outgoing: OperationRequest, path: str, match: ResolverMatch, ctx: Context) -> HttpRequest:
        headers = [(name, value) for name, value in outgoing.headers if name.lower() != "accept"]
        if outgoing.cookies:
            headers.append(("Cookie", outgoing.cookie_header))
        view_request: Any = build_request(
            ctx,
            outgoing.method,
            path,
            outgoing.query_string,
            outgoing.body,
            accept="application/json, */*",
            match=match,
            headers=headers,
        )
        user = copy_user(view_request.user)

        async def auser() -> Any:
            return user

        view_request.user, view_request.auser = user, auser
        view_request._dont_enforce_csrf_checks = True  # Django's attribute for requests that no browser makes.
        return cast("HttpRequest", view_request)

    def _read_response(self, response: Any, view_request: HttpRequest) -> OperationReply:
        reply = read_reply(response, view_request, self._max_size)
        check_size(len(reply.body), self._max_size)
        return reply
