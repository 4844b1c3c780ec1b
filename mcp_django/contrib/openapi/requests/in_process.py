"""View transport of operations: call views of this project in the same process.

A view gets its own request with the user of the call's principal. Nothing else of the caller is passed on. No cookie
logs in, so CSRF tokens are not required. MIDDLEWARE has processed the outer call and does not run again; attributes
that it set on the outer request are copied. ATOMIC_REQUESTS applies as in Django. A view that authenticates by a token
finds only the values of `credentials=`.
"""

from collections.abc import AsyncIterable, Callable, Iterable
from inspect import iscoroutinefunction
from typing import Any, cast
from urllib.parse import unquote

from django.core.handlers.base import BaseHandler
from django.http import HttpRequest, HttpResponseBase
from django.urls import ResolverMatch, get_resolver, get_script_prefix, get_urlconf, reverse
from django.urls.exceptions import NoReverseMatch, Resolver404

from mcp_django.contrib.openapi.requests.messages import Outgoing, Reply
from mcp_django.internal_request import Body, close, fresh, make_request, refusal
from mcp_django.protocol.errors import ToolError
from mcp_django.schema import DeclarationError
from mcp_django.server.context.context import Context

View = Callable[..., Any]
_ROUTED = "The request reaches another view: change the values in its path"


class Inside:
    """Sends requests to views of the active URLconf."""

    is_remote = False

    def __init__(
        self,
        *,
        root: str = "",
        named: str = "",
        namespace: str = "",
        max_size: int,
        prepare: Callable[[View], View] = lambda view: view,
    ) -> None:
        """Set the place of the API in the URLconf.

        The document's paths are below the path `root`, or below the URL named `url_name`. Views must be in `namespace`,
        if given. `prepare` wraps each view before its call. `max_size` is the maximum bytes of an answer.
        """
        self._root, self._named, self._namespace = root.rstrip("/"), named, namespace
        self._max_size, self._prepare = max_size, prepare

    async def send(self, request: Outgoing, ctx: Context) -> Reply:
        """Call the view and return its answer.

        Raises ToolError for an answer that is too large, and the exceptions of a faulty view.
        """
        run = ctx.server.executor.run
        begun = await run(self._begin, request, ctx)
        if isinstance(begun, Reply):
            return begun

        view, made, match = begun
        try:
            response = await view(made, *match.args, **match.kwargs)
            if _is_streamed_async(response):
                return await self._streamed(response, made)
            return await run(self._read, response, made)
        except Exception as problem:
            return await run(_refused, problem, made)
        finally:
            await run(close, None, made)

    def check(self, where: str) -> None:
        """Check that the API is in the URLconf. Raises DeclarationError."""
        try:
            self._below()
        except NoReverseMatch:
            raise DeclarationError(
                f"{where}: the URL {self._named!r} is not in the URLconf, or takes arguments; set root= to the path "
                "of the API"
            ) from None

    async def open(self) -> None:
        """Return at once: a view needs no connection."""

    async def close(self) -> None:
        """Return at once: a view needs no connection."""

    def _begin(self, outgoing: Outgoing, ctx: Context) -> Reply | tuple[View, HttpRequest, ResolverMatch]:
        """Call a sync view and return its reply; return an async view with its request.

        The caller awaits an async view on the loop.
        """
        path = self._below() + unquote(outgoing.path)
        try:
            match = get_resolver(get_urlconf()).resolve(path)
        except Resolver404:
            return _failure(404, "Not found.")
        if not self._is_meant(match, outgoing):
            return _failure(404, _ROUTED)
        view = BaseHandler().make_view_atomic(self._prepare(match.func))
        made = self._request(outgoing, path, match, ctx)
        if iscoroutinefunction(view):
            return view, made, match
        try:
            response = view(made, *match.args, **match.kwargs)
            if _is_streamed_async(response):

                async def given(*args: Any, **kwargs: Any) -> Any:
                    return response

                return given, made, match
            return self._read(response, made)
        except Exception as problem:
            return _refused(problem, made)

    def _below(self) -> str:
        if not self._named:
            return self._root
        found = reverse(self._named)
        return f"/{found.removeprefix(get_script_prefix()).strip('/')}".rstrip("/")

    def _is_meant(self, match: ResolverMatch, outgoing: Outgoing) -> bool:
        """Return True if each path argument reached the view as a value."""
        if self._namespace and self._namespace not in match.namespaces:
            return False
        captured = [*(getattr(match, "captured_kwargs", None) or {}).values(), *match.args]
        taken = [str(value) for value in captured]
        plain = [text for text in outgoing.arguments.values() if "/" in text or text not in taken]
        converted = [value for value in captured if not isinstance(value, str)]
        return len(taken) >= len(outgoing.arguments) and all(
            text in taken if "/" in text else bool(converted) for text in plain
        )

    def _request(self, outgoing: Outgoing, path: str, match: ResolverMatch, ctx: Context) -> HttpRequest:
        headers = [(name, value) for name, value in outgoing.headers if name.lower() != "accept"]
        if outgoing.cookies:
            headers.append(("Cookie", outgoing.cookie_line))
        made: Any = make_request(
            ctx,
            outgoing.method,
            path,
            outgoing.query_string,
            Body(outgoing.body.content, outgoing.body.content_type),
            accept="application/json, */*",
            match=match,
            headers=headers,
        )
        user = fresh(made.user)

        async def auser() -> Any:
            return user

        made.user, made.auser = user, auser
        made._dont_enforce_csrf_checks = True  # Django's attribute for requests that no browser makes.
        return cast("HttpRequest", made)

    def _read(self, response: Any, made: HttpRequest) -> Reply:
        try:
            render = getattr(response, "render", None)
            if callable(render) and not getattr(response, "is_rendered", True):
                response = render()
            if not response.streaming:
                return self._reply(response, response.content)
            pieces: Iterable[bytes] = response.streaming_content
            found = bytearray()
            for piece in pieces:
                found += self._bounded(found, piece)
            return self._reply(response, bytes(found))
        finally:
            close(response, made)

    async def _streamed(self, response: Any, made: HttpRequest) -> Reply:
        pieces: AsyncIterable[bytes] = response.streaming_content
        found = bytearray()
        try:
            async for piece in pieces:
                found += self._bounded(found, piece)
        finally:
            close(response, made)
        return self._reply(response, bytes(found))

    def _bounded(self, found: bytearray, piece: bytes) -> bytes:
        if len(found) + len(piece) > self._max_size:
            raise ToolError(f"The answer is larger than {self._max_size} bytes, which is the limit; ask for less")
        return piece

    def _reply(self, response: HttpResponseBase, body: bytes) -> Reply:
        self._bounded(bytearray(), body)
        return Reply(response.status_code, {name.lower(): value for name, value in response.headers.items()}, body)


def _is_streamed_async(response: Any) -> bool:
    return bool(getattr(response, "streaming", False) and getattr(response, "is_async", False))


def _refused(problem: Exception, made: HttpRequest) -> Reply:
    """Build the reply that Django would send for an exception, or re-raise it."""
    close(None, made)
    found = refusal(problem)
    if found is None:
        raise problem
    return _failure(*found)


def _failure(status: int, text: str) -> Reply:
    return Reply(status, {"content-type": "text/plain; charset=utf-8"}, text.encode())
