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

Skills are in the folder of the client, or in `.agents/skills`, which agentskills.io names for all clients.
"""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

TOKEN_VARIABLE = "MCP_TOKEN"
"""Environment variable from which mcp_stdio reads a token."""


class UnsupportedConfiguration(Exception):
    """The client's file does not support the configuration.

    The text names an alternative.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalServer:
    """A server that the client starts."""

    command: str
    args: list[str]
    env: dict[str, str] = field(default_factory=dict)
    cwd: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteServer:
    """A server at a URL."""

    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSource:
    """A token: its value, or the environment variable from which the client reads it."""

    variable: str = ""
    value: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientProgram:
    """A program with MCP clients, and the file and format of its configuration."""

    title: str
    path: Callable[[Path], Path | None]
    """Function from the project's directory to the file, or None without a file."""
    section: str = "mcpServers"
    """The object or table that contains the servers by name."""
    format: Literal["json", "toml"] = "json"
    variable: str = ""
    """Notation for an environment variable, with NAME as placeholder."""
    supports_cwd: bool = False
    local_type: str = ""
    remote_type: str = ""
    url_key: str = "url"
    """The key of the URL; empty if remote servers are unsupported."""
    next_step: str = ""
    """Instructions for the user after the change."""
    skills: str = ".agents/skills"
    """Folder of skills in a project; empty for a client without one."""

    def build_entry(self, server: LocalServer | RemoteServer, secret: TokenSource | None = None) -> dict[str, Any]:
        """Build the entry for `server` in the client's file. Raises Unsupported."""
        if isinstance(server, RemoteServer):
            return self._build_remote_entry(server, secret)
        entry: dict[str, Any] = {"type": self.local_type} if self.local_type else {}
        entry |= {"command": server.command, "args": server.args}
        if server.cwd and self.supports_cwd:
            entry["cwd"] = server.cwd

        env = dict(server.env)
        if secret is not None and self.format == "toml" and secret.variable:
            if secret.variable != TOKEN_VARIABLE:
                raise UnsupportedConfiguration(
                    f"{self.title} passes variables under their own name; put the token into {TOKEN_VARIABLE}"
                )
            entry["env_vars"] = [TOKEN_VARIABLE]
        elif secret is not None:
            env[TOKEN_VARIABLE] = self._format_token(secret)
        return {**entry, "env": env} if env else entry

    def _build_remote_entry(self, server: RemoteServer, secret: TokenSource | None) -> dict[str, Any]:
        if not self.url_key:
            raise UnsupportedConfiguration(
                f"{self.title} supports only local servers in its file; add {server.url} as a connector instead"
            )
        entry = {"type": self.remote_type} if self.remote_type else {}
        entry[self.url_key] = server.url
        if secret is None:
            return entry
        if self.format == "toml":
            if not secret.variable:
                raise UnsupportedConfiguration(
                    f"{self.title} does not support tokens in its file; name a variable with --token-env"
                )
            return {**entry, "bearer_token_env_var": secret.variable}
        return {**entry, "headers": {"Authorization": f"Bearer {self._format_token(secret)}"}}

    def _format_token(self, secret: TokenSource) -> str:
        if not secret.variable:
            return secret.value
        if not self.variable:
            cure = "use --with-token to write the token itself, or --user"
            raise UnsupportedConfiguration(f"{self.title} does not support variables in its file; {cure}")
        return self.variable.replace("NAME", secret.variable)


def _in_home(*parts: str) -> Callable[[Path], Path]:
    return lambda project: Path.home().joinpath(*parts)


def _in_project(*parts: str) -> Callable[[Path], Path]:
    return lambda project: project.joinpath(*parts)


def _get_configuration_directory(name: str, mac: Path) -> Path:
    """Return a directory in the system's location for program settings."""
    if sys.platform == "win32":
        return Path(os.environ.get("APPDATA") or Path.home() / "AppData" / "Roaming") / name
    if sys.platform == "darwin":
        return mac / name
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / name


def _get_claude_path(project: Path) -> Path:
    return (
        _get_configuration_directory("Claude", Path.home() / "Library" / "Application Support")
        / "claude_desktop_config.json"
    )


def _get_zed_path(project: Path) -> Path:
    name = "Zed" if sys.platform == "win32" else "zed"
    return _get_configuration_directory(name, Path.home() / ".config") / "settings.json"


def _get_codex_path(project: Path) -> Path:
    return Path(os.environ.get("CODEX_HOME") or Path.home() / ".codex") / "config.toml"


CLIENT_PROGRAMS: dict[str, ClientProgram] = {
    "claude": ClientProgram(
        title="Claude Desktop", path=_get_claude_path, url_key="", next_step="Restart Claude Desktop.", skills=""
    ),
    "claude-code": ClientProgram(
        title="Claude Code",
        path=_in_project(".mcp.json"),
        variable="${NAME}",
        local_type="stdio",
        remote_type="http",
        next_step="Claude Code asks for approval of project servers; /mcp lists them.",
        skills=".claude/skills",
    ),
    "vscode": ClientProgram(
        title="VS Code",
        path=_in_project(".vscode", "mcp.json"),
        section="servers",
        variable="${env:NAME}",
        supports_cwd=True,
        local_type="stdio",
        remote_type="http",
        next_step="VS Code shows Start above the entry.",
        skills=".github/skills",
    ),
    "cursor": ClientProgram(
        title="Cursor", path=_in_project(".cursor", "mcp.json"), variable="${env:NAME}", skills=".cursor/skills"
    ),
    "windsurf": ClientProgram(
        title="Windsurf",
        path=_in_home(".codeium", "windsurf", "mcp_config.json"),
        variable="${env:NAME}",
        url_key="serverUrl",
        next_step="Refresh the servers in Windsurf.",
        skills=".windsurf/skills",
    ),
    "gemini": ClientProgram(
        title="Gemini CLI",
        path=_in_project(".gemini", "settings.json"),
        variable="${NAME}",
        supports_cwd=True,
        url_key="httpUrl",
        skills=".gemini/skills",
    ),
    "codex": ClientProgram(
        title="Codex", path=_get_codex_path, section="mcp_servers", format="toml", supports_cwd=True
    ),
    "zed": ClientProgram(title="Zed", path=_get_zed_path, section="context_servers"),
    "generic": ClientProgram(title="the client", path=lambda project: None),
}
