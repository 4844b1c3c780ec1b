"""Texts to paste into clients, which connect them to a server at a URL. None has a secret."""

import json
import re
import shlex
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from mcp_django.conf.options import ServerSettings
from mcp_django.management.client_config import jsonc, toml_text
from mcp_django.management.client_config.catalogue import (
    CLIENT_PROGRAMS,
    TOKEN_VARIABLE,
    ClientProgram,
    RemoteServer,
    TokenSource,
)
from mcp_django.protocol.display_text import escape_json

FORMATS: dict[str, ModuleType] = {"json": jsonc, "toml": toml_text}
"""Modules that write the files of clients, by format."""
COMMAND_CLIENT = "claude-code"
"""Client that has a command for a new server."""
FILE_CLIENTS = ("vscode", "cursor")
"""Clients whose file is in the project."""


class ConnectionText(NamedTuple):
    """Text with the client and the place that it is for."""

    client: str
    place: str
    """File in the project; empty for a command of a terminal."""
    text: str


def build_client_name(settings: ServerSettings) -> str:
    """Return the name of a server in the files of clients."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", settings.name).strip("-") or "django"


def format_claude_command(name: str, entry: dict[str, Any]) -> str:
    """Return the command that adds a server to Claude Code."""
    return f"claude mcp add-json {shlex.quote(name)} {shlex.quote(escape_json(json.dumps(entry, ensure_ascii=False)))}"


def format_entry(client: ClientProgram, name: str, entry: dict[str, Any]) -> str:
    """Return a file of the client with one entry."""
    text: str = FORMATS[client.format].put("", client.section, name, entry)
    return (escape_json(text) if client.format == "json" else text).rstrip("\n")


def build_connection_texts(settings: ServerSettings, url: str, *, with_token: bool) -> list[ConnectionText]:
    """Return the texts for common clients. `with_token` names the variable that holds a token."""
    name, server = build_client_name(settings), RemoteServer(url=url)
    secret = TokenSource(variable=TOKEN_VARIABLE) if with_token else None
    program = CLIENT_PROGRAMS[COMMAND_CLIENT]
    texts = [ConnectionText(program.title, "", format_claude_command(name, program.build_entry(server, secret)))]
    for key in FILE_CLIENTS:
        program = CLIENT_PROGRAMS[key]
        text = format_entry(program, name, program.build_entry(server, secret))
        texts.append(ConnectionText(program.title, str(program.path(Path())), text))
    return texts
