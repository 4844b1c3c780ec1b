"""Catalogue of MCP clients: the location and format of their server configuration.

According to their documentation in November 2026:

- Claude Desktop: modelcontextprotocol.io, "Connect to local MCP servers". Its file supports local servers only; remote
  ones are added as connectors in its settings.
- Claude Code: code.claude.com/docs/en/mcp, with `${NAME}` in command, args, env, url and headers.
- VS Code: code.visualstudio.com/docs/copilot/reference/mcp-configuration; variables as in its other files.
- Cursor: cursor.com/docs/mcp, with `${env:NAME}`.
- Windsurf: docs.windsurf.com/windsurf/cascade/mcp, with `serverUrl` and `${env:NAME}`.
- Gemini CLI: github.com/google-gemini/gemini-cli, docs/tools/mcp-server.md; `httpUrl` is Streamable HTTP, `url` is SSE.
- Codex: developers.openai.com/codex/mcp. It names variables and refuses tokens (`bearer_token_env_var`, `env_vars`).
- Zed: zed.dev/docs/ai/mcp. It does not support variables.
"""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

TOKEN = "MCP_TOKEN"
"""Environment variable from which mcp_stdio reads a token."""


class Unsupported(Exception):
    """The client's file does not support the configuration.

    The text names an alternative.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    """A server that the client starts."""

    command: str
    args: list[str]
    env: dict[str, str] = field(default_factory=dict)
    cwd: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """A server at a URL."""

    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """A token: its value, or the environment variable from which the client reads it."""

    variable: str = ""
    value: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A client program."""

    title: str
    path: Callable[[Path], Path | None]
    """Function from the project's directory to the file, or None without a file."""
    section: str = "mcpServers"
    """The object or table that contains the servers by name."""
    format: Literal["json", "toml"] = "json"
    variable: str = ""
    """Notation for an environment variable, with NAME as placeholder."""
    takes_cwd: bool = False
    local_type: str = ""
    remote_type: str = ""
    url_key: str = "url"
    """The key of the URL; empty if remote servers are unsupported."""
    after: str = ""
    """Instructions for the user after the change."""

    def entry(self, server: Local | Remote, secret: Secret | None = None) -> dict[str, Any]:
        """Build the entry for `server` in the client's file. Raises Unsupported."""
        if isinstance(server, Remote):
            return self._remote(server, secret)
        entry: dict[str, Any] = {"type": self.local_type} if self.local_type else {}
        entry |= {"command": server.command, "args": server.args}
        if server.cwd and self.takes_cwd:
            entry["cwd"] = server.cwd

        env = dict(server.env)
        if secret is not None and self.format == "toml" and secret.variable:
            if secret.variable != TOKEN:
                raise Unsupported(f"{self.title} passes variables under their own name; put the token into {TOKEN}")
            entry["env_vars"] = [TOKEN]
        elif secret is not None:
            env[TOKEN] = self._written(secret)
        return {**entry, "env": env} if env else entry

    def _remote(self, server: Remote, secret: Secret | None) -> dict[str, Any]:
        if not self.url_key:
            raise Unsupported(
                f"{self.title} supports only local servers in its file; add {server.url} as a connector instead"
            )
        entry = {"type": self.remote_type} if self.remote_type else {}
        entry[self.url_key] = server.url
        if secret is None:
            return entry
        if self.format == "toml":
            if not secret.variable:
                raise Unsupported(f"{self.title} does not support tokens in its file; name a variable with --token-env")
            return {**entry, "bearer_token_env_var": secret.variable}
        return {**entry, "headers": {"Authorization": f"Bearer {self._written(secret)}"}}

    def _written(self, secret: Secret) -> str:
        if not secret.variable:
            return secret.value
        if not self.variable:
            cure = "use --with-token to write the token itself, or --user"
            raise Unsupported(f"{self.title} does not support variables in its file; {cure}")
        return self.variable.replace("NAME", secret.variable)


def _home(*parts: str) -> Callable[[Path], Path]:
    return lambda project: Path.home().joinpath(*parts)


def _project(*parts: str) -> Callable[[Path], Path]:
    return lambda project: project.joinpath(*parts)


def _configuration(name: str, mac: Path) -> Path:
    """Return a directory in the system's location for program settings."""
    if sys.platform == "win32":
        return Path(os.environ.get("APPDATA") or Path.home() / "AppData" / "Roaming") / name
    if sys.platform == "darwin":
        return mac / name
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / name


def _claude(project: Path) -> Path:
    return _configuration("Claude", Path.home() / "Library" / "Application Support") / "claude_desktop_config.json"


def _zed(project: Path) -> Path:
    name = "Zed" if sys.platform == "win32" else "zed"
    return _configuration(name, Path.home() / ".config") / "settings.json"


def _codex(project: Path) -> Path:
    return Path(os.environ.get("CODEX_HOME") or Path.home() / ".codex") / "config.toml"


CLIENTS: dict[str, Client] = {
    "claude": Client(title="Claude Desktop", path=_claude, url_key="", after="Restart Claude Desktop."),
    "claude-code": Client(
        title="Claude Code",
        path=_project(".mcp.json"),
        variable="${NAME}",
        local_type="stdio",
        remote_type="http",
        after="Claude Code asks for approval of project servers; /mcp lists them.",
    ),
    "vscode": Client(
        title="VS Code",
        path=_project(".vscode", "mcp.json"),
        section="servers",
        variable="${env:NAME}",
        takes_cwd=True,
        local_type="stdio",
        remote_type="http",
        after="VS Code shows Start above the entry.",
    ),
    "cursor": Client(title="Cursor", path=_project(".cursor", "mcp.json"), variable="${env:NAME}"),
    "windsurf": Client(
        title="Windsurf",
        path=_home(".codeium", "windsurf", "mcp_config.json"),
        variable="${env:NAME}",
        url_key="serverUrl",
        after="Refresh the servers in Windsurf.",
    ),
    "gemini": Client(
        title="Gemini CLI",
        path=_project(".gemini", "settings.json"),
        variable="${NAME}",
        takes_cwd=True,
        url_key="httpUrl",
    ),
    "codex": Client(title="Codex", path=_codex, section="mcp_servers", format="toml", takes_cwd=True),
    "zed": Client(title="Zed", path=_zed, section="context_servers"),
    "generic": Client(title="the client", path=lambda project: None),
}
