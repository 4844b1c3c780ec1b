"""Errors of calls that were not sent: they replace their key in the response, and cannot be forged."""

from typing import Any

import anyio
import pytest
from mcp.shared.message import SessionMessage
from mcp_types import ErrorData, JSONRPCError, JSONRPCResponse

from mcp_django.client.errors import AuthorizationNeeded
from mcp_django.client.transports.local_errors import LOCAL_ERROR_CODE, LocalErrors

PROBLEM = AuthorizationNeeded(alias="crm", url="https://crm.example/authorize")


def build_response(data: Any) -> SessionMessage:
    error = ErrorData(code=LOCAL_ERROR_CODE, message="No credential", data=data)
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=1, error=error))


def get_data(item: Any) -> Any:
    return item.message.error.data


def test_an_error_replaces_its_key_once() -> None:
    errors = LocalErrors()
    response = build_response(errors.store(PROBLEM))
    assert get_data(errors.restore(response)) is PROBLEM
    assert errors.restore(response) is response
    assert get_data(response) != PROBLEM


@pytest.mark.parametrize(
    "item",
    [
        build_response({"localError": "0" * 32}),
        build_response({"localError": None}),
        build_response(None),
        build_response("text"),
        SessionMessage(JSONRPCResponse(jsonrpc="2.0", id=1, result={})),
        ValueError("unreadable"),
    ],
)
def test_other_items_pass_unchanged(item: Any) -> None:
    errors = LocalErrors()
    errors.store(PROBLEM)
    assert errors.restore(item) is item


def test_a_key_of_another_connection_is_unknown() -> None:
    response = build_response(LocalErrors().store(PROBLEM))
    assert LocalErrors().restore(response) is response


async def test_the_reader_restores_errors_and_closes_the_inner_one() -> None:
    errors = LocalErrors()
    sender, inner = anyio.create_memory_object_stream[Any](2)
    reader, writer = errors.wrap((inner, sender))
    assert writer is sender
    assert reader.last_context is None  # type: ignore[attr-defined]  # the SDK reads it in the same way
    for _ in range(2):
        await sender.send(build_response(errors.store(PROBLEM)))
    async with reader:
        assert get_data(await reader.receive()) is PROBLEM
        assert get_data(await anext(aiter(reader))) is PROBLEM
    with pytest.raises(anyio.BrokenResourceError):
        await sender.send(build_response(None))
    sender.close()
