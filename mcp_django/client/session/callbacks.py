"""Callbacks for requests of a server: sampling, elicitation and roots.

A callback is a synchronous or asynchronous function. Callbacks that are set when the client connects are declared as
its capabilities. Other requests of a server are refused.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import mcp_types as types
from mcp.client.session import ClientRequestContext

from mcp_django.client.errors import CallError
from mcp_django.client.session.handlers import Unsubscribe
from mcp_django.protocol.log_text import get_logger

logger = get_logger("mcp_django.client")

SamplingResponse = types.CreateMessageResult | types.CreateMessageResultWithTools
SamplingCallback = Callable[[types.CreateMessageRequestParams], Awaitable[SamplingResponse] | SamplingResponse]
"""Callback from the server's sampling parameters to the model's response."""
ElicitationResponse = types.ElicitResult | Mapping[str, Any] | None
ElicitationCallback = Callable[[types.ElicitRequestParams], Awaitable[ElicitationResponse] | ElicitationResponse]
"""Callback for a form or a URL to visit.

Receives `ElicitRequestFormParams` or `ElicitRequestURLParams`. Returns an ElicitResult, the form's content (accepts),
or None (declines).
"""
Root = types.Root | Path | str
RootsSource = Iterable[Root] | Callable[[], Awaitable[Iterable[Root]] | Iterable[Root]]
"""Directories: paths, `file://` URIs or `Root`s, or a function for them."""

INVALID_REQUEST, INTERNAL_ERROR = -32600, -32603
MAX_CONCURRENT_CALLBACKS = 64
"""Maximum number of callbacks that run concurrently; further requests are refused."""


@dataclass(eq=False)
class ServerRequestCallbacks:
    """Callbacks for the requests of a server.

    `_pause_timeouts` is entered while one runs.
    """

    sampling: SamplingCallback | None
    elicitation: ElicitationCallback | None
    roots: RootsSource | None
    _pause_timeouts: Callable[[], AbstractContextManager[None]]
    _running: int = 0

    def set(self, feature: Literal["sampling", "elicitation", "roots"], callback: Any) -> Unsubscribe:
        """Set the callback of a feature.

        Returns a function that removes it, unless another callback has been set since.
        """
        setattr(self, feature, callback)

        def remove() -> None:
            if getattr(self, feature) is callback:
                setattr(self, feature, None)

        return remove

    async def sample(
        self, context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> SamplingResponse | types.ErrorData:
        """Handle `sampling/createMessage`."""
        return cast("SamplingResponse | types.ErrorData", await self._run_callback("sampling", self.sampling, params))

    async def elicit(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """Handle `elicitation/create`."""
        response = await self._run_callback("elicitation", self.elicitation, params)
        if response is None:
            return types.ElicitResult(action="decline")
        if isinstance(response, Mapping):
            return types.ElicitResult(action="accept", content=dict(response))
        return cast("types.ElicitResult | types.ErrorData", response)

    async def list_roots(self, context: ClientRequestContext) -> types.ListRootsResult | types.ErrorData:
        """Handle `roots/list`."""
        callback = None if self.roots is None else self._get_roots
        return cast("types.ListRootsResult | types.ErrorData", await self._run_callback("roots", callback))

    async def _get_roots(self) -> types.ListRootsResult:
        roots: Any = self.roots() if callable(self.roots) else self.roots
        roots = await roots if inspect.isawaitable(roots) else roots
        return types.ListRootsResult(roots=[_create_root(root) for root in roots or ()])

    async def handle_input_request(self, request: types.InputRequest) -> types.InputResponse:
        """Handle an input request that is part of a result.

        Raises CallError if it is refused.
        """
        context: Any = None
        response: types.InputResponse | types.ErrorData
        match request:
            case types.CreateMessageRequest(params=params):
                response = await self.sample(context, params)
            case types.ElicitRequest(params=params):
                response = await self.elicit(context, params)
            case _:
                response = await self.list_roots(context)
        if isinstance(response, types.ErrorData):
            raise CallError(response.code, response.message)
        return response

    async def _run_callback(self, feature: str, callback: Callable[..., Any] | None, *values: Any) -> Any:
        """Run a project's callback; return its result, or an error response if it fails."""
        if callback is None:
            return types.ErrorData(code=INVALID_REQUEST, message=f"This client does not support {feature}")
        if self._running >= MAX_CONCURRENT_CALLBACKS:
            return types.ErrorData(
                code=INVALID_REQUEST, message=f"This client handles at most {MAX_CONCURRENT_CALLBACKS} requests at once"
            )
        self._running += 1
        try:
            with self._pause_timeouts():
                result = callback(*values)
                return await result if inspect.isawaitable(result) else result
        except Exception:
            logger.exception("Callback for an MCP server's request failed: %s", feature)
            return types.ErrorData(code=INTERNAL_ERROR, message="The client failed to handle the request")
        finally:
            self._running -= 1


def _create_root(root: Root) -> types.Root:
    match root:
        case types.Root():
            return root
        case Path():
            return types.Root.model_validate({"uri": root.absolute().as_uri(), "name": root.name or None})
    return types.Root.model_validate({"uri": root})
