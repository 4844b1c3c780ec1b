"""Texts to copy: a call by curl, command, Python and test, and configurations of clients.

They name the variable of a token, and contain no secret.
"""

import json
import pprint
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from django.utils.translation import gettext_lazy as _

from mcp_django.conf import get_settings
from mcp_django.management.client_config.catalogue import (
    CLIENT_PROGRAMS,
    RemoteServer,
    TokenSource,
    UnsupportedConfiguration,
)
from mcp_django.management.client_config.connection_texts import build_client_name, format_claude_command, format_entry
from mcp_django.protocol.headers import NAMED_PARAMS, encode_value
from mcp_django.protocol.revisions import LATEST

TOKEN_VARIABLE = "TOKEN"
METHOD_CALLS = {"tools/call": "call_tool", "prompts/get": "get_prompt", "resources/read": "read_resource"}


class CopyText(NamedTuple):
    """Text with its title."""

    name: str
    title: Any
    text: str
    is_configuration: bool = False
    """True for the configuration of a client."""


def build_copies(url: str, alias: str, username: str, request: Mapping[str, Any]) -> list[CopyText]:
    """Return the texts for a request to the endpoint `url`, as the user `username`."""
    call = _build_call(request)
    texts = [CopyText("curl", "curl", _build_curl(url, request))]
    if request["method"] == "tools/call":
        texts.append(CopyText("command", "mcp_call", _build_command(alias, username, request["params"])))
    return [
        *texts,
        CopyText("python", "Python", _build_python(url, call)),
        CopyText("test", _("Test case"), _build_test(alias, username, call)),
        *_iter_configurations(url, build_client_name(get_settings().servers[alias])),
    ]


def _iter_configurations(url: str, name: str) -> Iterator[CopyText]:
    """Yield the configuration of each client that reads a token from a variable."""
    for key, client in CLIENT_PROGRAMS.items():
        try:
            entry = client.build_entry(RemoteServer(url=url), TokenSource(variable=TOKEN_VARIABLE))
        except UnsupportedConfiguration:
            continue
        yield CopyText(key, client.title, format_entry(client, name, entry), is_configuration=True)
        if key == "claude-code":
            yield CopyText("claude", "claude mcp add-json", format_claude_command(name, entry), is_configuration=True)


def _build_curl(url: str, request: Mapping[str, Any]) -> str:
    method = request["method"]
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": LATEST.version,
        "Mcp-Method": method,
    }
    name = request["params"].get(NAMED_PARAMS.get(method, ""))
    if isinstance(name, str):
        headers["Mcp-Name"] = encode_value(name).decode("latin-1")
    lines = [f"curl {shlex.quote(url)}", f'-H "Authorization: Bearer ${TOKEN_VARIABLE}"']
    lines += [f"-H {shlex.quote(f'{key}: {value}')}" for key, value in headers.items()]
    lines.append(f"-d {shlex.quote(json.dumps(request))}")
    return " \\\n  ".join(lines)


def _build_command(alias: str, username: str, params: Mapping[str, Any]) -> str:
    arguments = json.dumps(params.get("arguments", {}), ensure_ascii=False)
    words = ["manage.py", "mcp_call", params["name"], arguments, "--user", username, "--server", alias]
    return shlex.join(words)


def _build_call(request: Mapping[str, Any]) -> str:
    """Return the call of a method of the client, as Python."""
    params = request["params"]
    if request["method"] == "resources/read":
        return f"read_resource({params.get('uri', '')!r})"
    arguments = pprint.pformat(params.get("arguments", {}), sort_dicts=False, width=100)
    return f"{METHOD_CALLS[request['method']]}({params['name']!r}, {arguments})"


def _build_python(url: str, call: str) -> str:
    return f"""import asyncio
import os

from mcp_django.client import Client, StreamableHTTP

target = StreamableHTTP({url!r}, headers={{"Authorization": f"Bearer {{os.environ['{TOKEN_VARIABLE}']}}"}})


async def main():
    async with Client(target) as client:
        print(await client.{_indent(call)})


asyncio.run(main())
"""


def _build_test(alias: str, username: str, call: str) -> str:
    return f"""from django.contrib.auth import get_user_model
from django.test import TransactionTestCase

from mcp_django.testing import TestClient


class CallTests(TransactionTestCase):
    async def test_call(self):
        user = await get_user_model().objects.aget_by_natural_key({username!r})
        client = TestClient({alias!r}, user=user)
        result = await client.{_indent(call)}
        self.assertTrue(result)
"""


def _indent(call: str) -> str:
    """Return a call whose further lines have the indentation of its first one."""
    return call.replace("\n", "\n        ")
