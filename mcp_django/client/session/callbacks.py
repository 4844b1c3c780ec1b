"""What a server may ask of this client: an answer of a model, an answer of a person, and where it may work.

An answerer is a plain function or a coroutine function. What is there when the client connects is declared as its
capabilities; a server that asks for anything else is refused.
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
"""Takes what the server wants of a model, and returns what the model said."""
Elicited = types.ElicitResult | Mapping[str, Any] | None
Elicitation = Callable[[types.ElicitRequestParams], Awaitable[Elicited] | Elicited]
"""Takes a form (`ElicitRequestFormParams`) or a page to be visited (`ElicitRequestURLParams`).

Returns an ElicitResult; or what was filled in, which accepts; or None, which declines.
"""
Root = types.Root | Path | str
Roots = Iterable[Root] | Callable[[], Awaitable[Iterable[Root]] | Iterable[Root]]
"""Directories as paths, `file://` URIs or `Root`s, or a function that returns them."""

INVALID_REQUEST, INTERNAL_ERROR = -32600, -32603
MAX_AT_ONCE = 64
"""Questions that are answered at the same time; what more a server asks is refused."""


class Answerers:
    """Who answers a server's questions. `pausing` is entered while one of them is at work."""

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
        """Have `answerer` answer, until what is returned is called or another is set."""
        setattr(self, what, answerer)

        def remove() -> None:
            if getattr(self, what) is answerer:
                setattr(self, what, None)

        return remove

    async def sample(
        self, context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> Sampled | types.ErrorData:
        """Answer `sampling/createMessage`."""
        if self.sampling is None:
            return _refusal("sampling")
        return cast("Sampled | types.ErrorData", await self._answer("sampling", self.sampling, params))

    async def elicit(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """Answer `elicitation/create`."""
        if self.elicitation is None:
            return _refusal("elicitation")
        answer = await self._answer("elicitation", self.elicitation, params)
        if answer is None:
            return types.ElicitResult(action="decline")
        if isinstance(answer, Mapping):
            return types.ElicitResult(action="accept", content=dict(answer))
        return cast("types.ElicitResult | types.ErrorData", answer)

    async def list_roots(self, context: ClientRequestContext) -> types.ListRootsResult | types.ErrorData:
        """Answer `roots/list`."""
        if self.roots is None:
            return _refusal("roots")
        return cast("types.ListRootsResult | types.ErrorData", await self._answer("roots", self._roots))

    async def _roots(self) -> types.ListRootsResult:
        given: Any = self.roots() if callable(self.roots) else self.roots
        given = await given if inspect.isawaitable(given) else given
        return types.ListRootsResult(roots=[_root(root) for root in given or ()])

    async def answer(self, request: types.InputRequest) -> types.InputResponse:
        """Answer a question that came as a part of a result. Raises CallError where there is no answer."""
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
        """What the project's function says, or the error that stands for its failure."""
        if self._at_work >= MAX_AT_ONCE:
            return types.ErrorData(code=INVALID_REQUEST, message=f"This client answers {MAX_AT_ONCE} questions at once")
        self._at_work += 1
        try:
            with self._pausing():
                answer = answerer(*values)
                return await answer if inspect.isawaitable(answer) else answer
        except Exception:
            logger.exception("The answer to an MCP server's question (%s) failed", what)
            return types.ErrorData(code=INTERNAL_ERROR, message="The client could not answer")
        finally:
            self._at_work -= 1


def _refusal(what: str) -> types.ErrorData:
    return types.ErrorData(code=INVALID_REQUEST, message=f"This client has no {what}")


def _root(root: Root) -> types.Root:
    match root:
        case types.Root():
            return root
        case Path():
            return types.Root.model_validate({"uri": root.absolute().as_uri(), "name": root.name or None})
    return types.Root.model_validate({"uri": root})
