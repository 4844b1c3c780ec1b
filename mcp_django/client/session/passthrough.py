"""Callbacks that forward a server's requests in wire format."""

from collections.abc import Awaitable, Callable
from typing import Any, TypedDict

import mcp_types as types

Ask = Callable[[str, dict[str, Any] | None], Awaitable[dict[str, Any]]]
"""Function from the method and parameters of a request to its wire result."""


class Answering(TypedDict, total=False):
    """Callbacks of a `Client`, as keyword arguments."""

    sampling: Any
    elicitation: Any
    roots: Any


def answering(ask: Ask, kinds: frozenset[str]) -> Answering:
    """Create callbacks for the given features that call `forward`.

    The features are "sampling", "elicitation" and "roots".
    """

    async def sample(params: types.CreateMessageRequestParams) -> Any:
        return types.CreateMessageResultWithTools.model_validate(await ask("sampling/createMessage", _wire(params)))

    async def elicit(params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult.model_validate(await ask("elicitation/create", _wire(params)))

    async def list_roots() -> list[types.Root]:
        return types.ListRootsResult.model_validate(await ask("roots/list", None)).roots

    answerers: Answering = {}
    if "sampling" in kinds:
        answerers["sampling"] = sample
    if "elicitation" in kinds:
        answerers["elicitation"] = elicit
    if "roots" in kinds:
        answerers["roots"] = list_roots
    return answerers


def _wire(params: Any) -> dict[str, Any]:
    wire: dict[str, Any] = params.model_dump(mode="json", by_alias=True, exclude_none=True)
    wire.pop("_meta", None)
    return wire
