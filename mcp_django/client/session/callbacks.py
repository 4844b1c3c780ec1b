"""Callbacks for requests of a server: sampling, elicitation and roots.

A callback is a synchronous or asynchronous function. Callbacks that are set when the client connects are declared as
its capabilities. Other requests of a server are refused.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal, cast

import mcp_types as types
from mcp.client.session import ClientRequestContext

from mcp_django.client.errors import CallError
from mcp_django.client.session.handlers import Unsubscribe

logger = logging.getLogger("mcp_django.client")

Sampled = types.CreateMessageResult | types.CreateMessageResultWithTools
Sampling = Callable[[types.CreateMessageRequestParams], Awaitable[Sampled] | Sampled]
"""Callback from the server's sampling parameters to the model's response."""
Elicited = types.ElicitResult | Mapping[str, Any] | None
Elicitation = Callable[[types.ElicitRequestParams], Awaitable[Elicited] | Elicited]
"""Callback for a form or a URL to visit.

Receives `ElicitRequestFormParams` or `ElicitRequestURLParams`. Returns an ElicitResult, the form's content (accepts),
or None (declines).
"""
Root = types.Root | Path | str
Roots = Iterable[Root] | Callable[[], Awaitable[Iterable[Root]] | Iterable[Root]]
"""Directories: paths, `file://` URIs or `Root`s, or a function for them."""

INVALID_REQUEST, INTERNAL_ERROR = -32600, -32603
MAX_AT_ONCE = 64
"""Maximum number of callbacks that run concurrently; further requests are refused."""


class Answerers:
    """Callbacks for the requests of a server.

    `pause_timeouts` is entered while one runs.
    """

    def __init__(
        self,
        sampling: Sampling | None,
        elicitation: Elicitation | None,
        roots: Roots | None,
        pausing: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self.sampling, self.elicitation, self.roots = sampling, elicitation, roots
        self._pausing = pausing
        self._at_work = 0

    def set(self, what: Literal["sampling", "elicitation", "roots"], answerer: Any) -> Unsubscribe:
        """Set the callback of a feature.

        Returns a function that removes it, unless another callback has been set since.
        """
        setattr(self, what, answerer)

        def remove() -> None:
            if getattr(self, what) is answerer:
                setattr(self, what, None)

        return remove

    async def sample(
        self, context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> Sampled | types.ErrorData:
        """Handle `sampling/createMessage`."""
        if self.sampling is None:
            return _refusal("sampling")
        return cast("Sampled | types.ErrorData", await self._answer("sampling", self.sampling, params))

    async def elicit(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """Handle `elicitation/create`."""
        if self.elicitation is None:
            return _refusal("elicitation")
        answer = await self._answer("elicitation", self.elicitation, params)
        if answer is None:
            return types.ElicitResult(action="decline")
        if isinstance(answer, Mapping):
            return types.ElicitResult(action="accept", content=dict(answer))
        return cast("types.ElicitResult | types.ErrorData", answer)

    async def list_roots(self, context: ClientRequestContext) -> types.ListRootsResult | types.ErrorData:
        """Handle `roots/list`."""
        if self.roots is None:
            return _refusal("roots")
        return cast("types.ListRootsResult | types.ErrorData", await self._answer("roots", self._roots))

    async def _roots(self) -> types.ListRootsResult:
        given: Any = self.roots() if callable(self.roots) else self.roots
        given = await given if inspect.isawaitable(given) else given
        return types.ListRootsResult(roots=[_root(root) for root in given or ()])

    async def answer(self, request: types.InputRequest) -> types.InputResponse:
        """Handle an input request that is part of a result.

        Raises CallError if it is refused.
        """
        context: Any = None
        answer: types.InputResponse | types.ErrorData
        match request:
            case types.CreateMessageRequest(params=params):
                answer = await self.sample(context, params)
            case types.ElicitRequest(params=params):
                answer = await self.elicit(context, params)
            case _:
                answer = await self.list_roots(context)
        if isinstance(answer, types.ErrorData):
            raise CallError(answer.code, answer.message)
        return answer

    async def _answer(self, what: str, answerer: Callable[..., Any], *values: Any) -> Any:
        """Run a project's callback; return its result, or an error response if it fails."""
        if self._at_work >= MAX_AT_ONCE:
            return types.ErrorData(
                code=INVALID_REQUEST, message=f"This client handles at most {MAX_AT_ONCE} requests at once"
            )
        self._at_work += 1
        try:
            with self._pausing():
                answer = answerer(*values)
                return await answer if inspect.isawaitable(answer) else answer
        except Exception:
            logger.exception("Callback for an MCP server's request failed: %s", what)
            return types.ErrorData(code=INTERNAL_ERROR, message="The client failed to handle the request")
        finally:
            self._at_work -= 1


def _refusal(what: str) -> types.ErrorData:
    return types.ErrorData(code=INVALID_REQUEST, message=f"This client does not support {what}")


def _root(root: Root) -> types.Root:
    match root:
        case types.Root():
            return root
        case Path():
            return types.Root.model_validate({"uri": root.absolute().as_uri(), "name": root.name or None})
    return types.Root.model_validate({"uri": root})
