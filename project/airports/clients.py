"""The lines to paste into MCP clients to connect them to this server."""

import json
import shlex
from dataclasses import dataclass
from urllib.parse import urlsplit

LOOPBACK = frozenset({"localhost", "127.0.0.1"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Snippet:
    """Something to paste, and where."""

    client: str
    """Name of the client."""
    where: str
    """The file or place it goes to."""
    text: str
    note: str = ""


def snippets(name: str, url: str, revision: str, *, token: str = "") -> list[Snippet]:
    """Return the lines for each client.

    Args:
        name: Name of the server in the client's configuration.
        url: The MCP endpoint as the reader's machine reaches it.
        revision: The protocol revision that the request made with curl names.
        token: Placeholder of a personal access token, if the server requires one.
    """
    address = shlex.quote(url)
    credential = f"Authorization: Bearer {token}"
    headers = {"headers": {"Authorization": f"Bearer {token}"}} if token else {}
    flag = f" --header {shlex.quote(credential)}" if token else ""
    # mcp-remote takes plain http from loopback as it is, and asks for this flag anywhere else.
    insecure = urlsplit(url).scheme == "http" and urlsplit(url).hostname not in LOOPBACK
    bridge = [
        "-y",
        "mcp-remote",
        url,
        *(["--allow-http"] if insecure else []),
        *(["--header", credential] if token else []),
    ]
    return [
        Snippet(
            client="Claude Code",
            where="in a terminal",
            text=f"claude mcp add --transport http {name} {address}{flag}",
            note="Then /mcp inside Claude Code shows the connection.",
        ),
        Snippet(
            client="Claude Desktop",
            where="claude_desktop_config.json",
            text=_json({"mcpServers": {name: {"command": "npx", "args": bridge}}}),
            note="Settings → Developer → Edit Config opens the file. Needs Node.js; restart Claude Desktop afterwards. "
            "On the machine of this checkout, python manage.py mcp_install claude prints lines without Node.js.",
        ),
        Snippet(
            client="VS Code",
            where=".vscode/mcp.json",
            text=_json({"servers": {name: {"type": "http", "url": url, **headers}}}),
            note="VS Code shows Start above the entry; the tools are there in agent mode.",
        ),
        Snippet(
            client="Cursor",
            where=".cursor/mcp.json",
            text=_json({"mcpServers": {name: {"url": url, **headers}}}),
            note="Or ~/.cursor/mcp.json for every project.",
        ),
        Snippet(
            client="Inspector",
            where="in a terminal",
            text=f"npx @modelcontextprotocol/inspector --cli {address} --transport http --method tools/list{flag}",
            note="Needs Node.js 22.19 or newer. Without --cli and --method it opens in the browser.",
        ),
        Snippet(
            client="curl",
            where="in a terminal",
            text=_curl(address, revision, credential if token else ""),
            note="One request, no session.",
        ),
    ]


def _curl(address: str, revision: str, credential: str) -> str:
    prefix = "io.modelcontextprotocol/"
    meta = {f"{prefix}protocolVersion": revision, f"{prefix}clientCapabilities": {}}
    body = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "search_airports", "arguments": {"query": "Zurich", "limit": 3}, "_meta": meta},
    }
    lines = [
        f"curl {address}",
        "-H 'Content-Type: application/json'",
        "-H 'Accept: application/json, text/event-stream'",
        f"-H 'MCP-Protocol-Version: {revision}'",
        "-H 'Mcp-Method: tools/call'",
        "-H 'Mcp-Name: search_airports'",
        *([f"-H {shlex.quote(credential)}"] if credential else []),
        f"-d {shlex.quote(_json(body))}",
    ]
    return " \\\n  ".join(lines)


def _json(value: object) -> str:
    return json.dumps(value, indent=2)
