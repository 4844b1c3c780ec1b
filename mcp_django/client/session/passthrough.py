"""Callbacks that forward a server's requests in wire format."""

from collections.abc import Awaitable, Callable
from typing import Any, TypedDict, cast

import mcp_types as types

ForwardRequest = Callable[[str, dict[str, Any] | None], Awaitable[dict[str, Any]]]
"""Function from the method and parameters of a request to its wire result."""


class CallbackOptions(TypedDict, total=False):
    """Callbacks of a `Client` and further options, as keyword arguments."""

    sampling: Any
    elicitation: Any
    roots: Any
    extensions: Any
    """Extensions to declare, with their settings."""


def create_callbacks(forward: ForwardRequest, features: frozenset[str]) -> CallbackOptions:
    """Create callbacks for the given features that call `forward`.

    The features are "sampling", "elicitation" and "roots".
    """

    async def sample(params: types.CreateMessageRequestParams) -> Any:
        return types.CreateMessageResultWithTools.model_validate(
            await forward("sampling/createMessage", _dump_params(params))
        )

    async def elicit(params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult.model_validate(await forward("elicitation/create", _dump_params(params)))

    async def list_roots() -> list[types.Root]:
        return types.ListRootsResult.model_validate(await forward("roots/list", None)).roots

    callbacks = {"sampling": sample, "elicitation": elicit, "roots": list_roots}
    return cast(CallbackOptions, {name: callback for name, callback in callbacks.items() if name in features})


def _dump_params(params: Any) -> dict[str, Any]:
    wire: dict[str, Any] = params.model_dump(mode="json", by_alias=True, exclude_none=True)
    wire.pop("_meta", None)
    return wire
