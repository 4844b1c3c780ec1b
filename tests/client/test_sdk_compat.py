"""Private names and texts of the official SDK: each exists, and only one module uses them."""

import inspect
import re
from importlib import import_module
from importlib.metadata import requires, version
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import MCPError
from mcp.client import streamable_http
from mcp.client.auth import OAuthClientProvider
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from packaging.requirements import Requirement
from packaging.version import Version

from mcp_django import client
from mcp_django.client import sdk_compat
from mcp_django.client.sdk_compat import PRIVATE_NAMES, BaseOAuthProvider, is_closed, is_lost, is_terminated

SOURCES = Path(client.__file__).parent


@pytest.mark.parametrize("path", PRIVATE_NAMES)
def test_each_private_name_exists(path: str) -> None:
    module, name = path.rsplit(".", 1)
    if name.startswith("_"):
        module, owner = module.rsplit(".", 1)
        assert hasattr(getattr(import_module(module), owner), name)
    else:
        assert hasattr(import_module(module), name)


def test_no_other_module_uses_private_names() -> None:
    private = re.compile(r"(?:from|import) mcp[\w.]*\._|" + "|".join(path.rpartition(".")[2] for path in PRIVATE_NAMES))
    users = {path.name for path in SOURCES.rglob("*.py") if private.search(path.read_text(encoding="utf-8"))}
    assert users == {"sdk_compat.py"}


def test_the_provider_calls_its_hooks_by_their_private_names() -> None:
    calls = inspect.getsource(OAuthClientProvider)
    assert "self._select_authorization_server(" in calls
    assert "await self._perform_authorization()" in calls
    for name in ("_select_authorization_server", "_perform_authorization"):
        hook, original = getattr(BaseOAuthProvider, name), getattr(OAuthClientProvider, name)
        assert [*inspect.signature(hook).parameters] == [*inspect.signature(original).parameters]


async def test_a_call_on_an_ended_connection_has_the_text_of_a_closed_one() -> None:
    sender, reader = anyio.create_memory_object_stream[Any](1)
    writer, receiver = anyio.create_memory_object_stream[Any](1)
    dispatcher: JSONRPCDispatcher[Any] = JSONRPCDispatcher(reader, writer)
    sender.close()

    async def ignore(*arguments: Any) -> Any:
        raise AssertionError

    await dispatcher.run(ignore, ignore)
    receiver.close()
    with pytest.raises(MCPError) as ended:
        await dispatcher.send_raw_request("ping", None)
    assert is_closed(ended.value)
    assert is_lost(ended.value)


def test_the_transport_has_the_other_texts() -> None:
    source = inspect.getsource(streamable_http)
    assert f'"{sdk_compat.SESSION_TERMINATED_TEXT}"' in source
    texts = set(re.findall(rf'"({sdk_compat.STREAM_LOST_PREFIX} [^"]*)"\n', source))
    assert len(texts) >= 2
    for text in texts:
        error = MCPError(types.CONNECTION_CLOSED, text)
        assert is_lost(error)
        assert not is_closed(error)
    assert sdk_compat.DROPPED_LOG_PREFIXES[0] in source


@pytest.mark.parametrize("name", [name for name in sdk_compat.LIBRARY_LOGGERS if name.startswith("mcp.")])
def test_each_logger_belongs_to_a_module(name: str) -> None:
    assert import_module(name).logger.name == name


def test_an_error_of_the_server_is_not_taken_for_a_local_one() -> None:
    for code, text in (
        (types.INTERNAL_ERROR, sdk_compat.CONNECTION_CLOSED_TEXT),
        (types.INTERNAL_ERROR, sdk_compat.SESSION_TERMINATED_TEXT),
        (types.CONNECTION_CLOSED, "Other"),
    ):
        error = MCPError(code, text)
        assert not is_lost(error)
        assert not is_terminated(error)


def test_minor_releases_that_were_not_checked_are_excluded() -> None:
    bounds = [Requirement(text) for text in requires("mcp-django-channels") or () if Requirement(text).name == "mcp"]
    installed = Version(version("mcp"))
    for requirement in bounds:
        assert installed in requirement.specifier
        assert Version(f"{installed.major}.{installed.minor + 1}") not in requirement.specifier
    assert bounds
