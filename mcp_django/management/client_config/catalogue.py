"""The clients: where each keeps its servers, and in which words.

As their documentation has it in November 2026:

- Claude Desktop: modelcontextprotocol.io, "Connect to local MCP servers". Its file knows local servers only; remote
  ones are added as connectors in its settings.
- Claude Code: code.claude.com/docs/en/mcp, with `${NAME}` in command, args, env, url and headers.
- VS Code: code.visualstudio.com/docs/copilot/reference/mcp-configuration; variables as in its other files.
- Cursor: cursor.com/docs/mcp, with `${env:NAME}`.
- Windsurf: docs.windsurf.com/windsurf/cascade/mcp, with `serverUrl` and `${env:NAME}`.
- Gemini CLI: github.com/google-gemini/gemini-cli, docs/tools/mcp-server.md; `httpUrl` is Streamable HTTP, `url` is SSE.
- Codex: developers.openai.com/codex/mcp. It names variables and refuses tokens (`bearer_token_env_var`, `env_vars`).
- Zed: zed.dev/docs/ai/mcp. It has no variables.
"""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

TOKEN = "MCP_TOKEN"
"""The variable in which mcp_stdio looks for a token."""


class Unsupported(Exception):
    """The client cannot be told that in its file; the text says what to do instead."""


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
    """A token: by the name of the variable that the client will find it in, or itself."""

    variable: str = ""
    value: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """One program."""

    title: str
    path: Callable[[Path], Path | None]
    """Its file, given the project's directory; None when there is none to write to."""
    section: str = "mcpServers"
    """The object, or table, that holds its servers by name."""
    format: Literal["json", "toml"] = "json"
    variable: str = ""
    """How a variable of the environment is referred to, with NAME for its name."""
    takes_cwd: bool = False
    local_type: str = ""
    remote_type: str = ""
    url_key: str = "url"
    """Empty: it takes no servers at URLs."""
    after: str = ""
    """What is to be done then."""

    def entry(self, server: Local | Remote, secret: Secret | None = None) -> dict[str, Any]:
        """What describes `server` in the client's file. Raises Unsupported."""
        if isinstance(server, Remote):
            return self._remote(server, secret)
        entry: dict[str, Any] = {"type": self.local_type} if self.local_type else {}
        entry |= {"command": server.command, "args": server.args}
        if server.cwd and self.takes_cwd:
            entry["cwd"] = server.cwd
        env = dict(server.env)
        if secret is not None and self.format == "toml" and secret.variable:
            if secret.variable != TOKEN:
                raise Unsupported(f"{self.title} passes variables on under their own name; put the token into {TOKEN}")
            entry["env_vars"] = [TOKEN]
        elif secret is not None:
            env[TOKEN] = self._written(secret)
        return {**entry, "env": env} if env else entry

    def _remote(self, server: Remote, secret: Secret | None) -> dict[str, Any]:
        if not self.url_key:
            raise Unsupported(f"{self.title} takes local servers in its file; add {server.url} as a connector instead")
        entry = {"type": self.remote_type} if self.remote_type else {}
        entry[self.url_key] = server.url
        if secret is None:
            return entry
        if self.format == "toml":
            if not secret.variable:
                raise Unsupported(f"{self.title} takes no tokens in its file; name a variable with --token-env")
            return {**entry, "bearer_token_env_var": secret.variable}
        return {**entry, "headers": {"Authorization": f"Bearer {self._written(secret)}"}}

    def _written(self, secret: Secret) -> str:
        if not secret.variable:
            return secret.value
        if not self.variable:
            cure = "--with-token writes the token itself, and --user needs none"
            raise Unsupported(f"{self.title} knows no variables in its file; {cure}")
        return self.variable.replace("NAME", secret.variable)


def _home(*parts: str) -> Callable[[Path], Path]:
    return lambda project: Path.home().joinpath(*parts)


def _project(*parts: str) -> Callable[[Path], Path]:
    return lambda project: project.joinpath(*parts)


def _configuration(name: str, mac: Path) -> Path:
    """A directory among those in which programs of this system keep their settings."""
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
        after="Claude Code asks before it uses servers of a project; /mcp shows them.",
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
