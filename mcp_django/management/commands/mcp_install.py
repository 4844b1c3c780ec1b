"""Command that adds this project's servers to the configuration of MCP clients."""

import os
import re
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from mcp_django.conf import get_settings
from mcp_django.conf.options import ServerSettings
from mcp_django.management.client_config import toml_text
from mcp_django.management.client_config.agent_skill import (
    SKILL_NAME,
    ChangedSkill,
    install_skill,
    remove_skill,
)
from mcp_django.management.client_config.catalogue import (
    CLIENT_PROGRAMS,
    TOKEN_VARIABLE,
    ClientProgram,
    LocalServer,
    RemoteServer,
    TokenSource,
    UnsupportedConfiguration,
)
from mcp_django.management.client_config.connection_texts import (
    FORMATS,
    build_client_name,
    format_claude_command,
    format_entry,
)
from mcp_django.management.client_config.safe_file import SafeFile
from mcp_django.management.command_options import add_server_option
from mcp_django.management.output import CleanCommand

SETTINGS_VARIABLE = "DJANGO_SETTINGS_MODULE"


class Command(CleanCommand):
    """Print the configuration.

    With `--write` add it to the file and preserve everything else. A file that cannot be read or changed safely is left
    unchanged (exit code 1). Tokens are written only on request.
    """

    help = "Print or write the configuration of this project's server for an MCP client."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("client", choices=CLIENT_PROGRAMS, help="the client")
        parser.add_argument("--write", action="store_true", help="write it to the client's file, with a backup")
        parser.add_argument("--remove", action="store_true", help="remove it from the client's file")
        parser.add_argument(
            "--skills",
            action="store_true",
            help="write the skill about mcp_tools.py into the project, and nothing else",
        )
        parser.add_argument("--file", type=Path, help="path of the file (default: the client's usual one)")
        parser.add_argument("--name", help="name of the server in the client (default: the server's own name)")
        parser.add_argument("--transport", choices=("stdio", "http"), default="stdio", help="default: stdio")
        parser.add_argument("--url", help="URL of the server, for http (default: that of runserver)")
        add_server_option(parser)
        parser.add_argument("--user", help="username to act as, for stdio")
        parser.add_argument("--scope", action="append", dest="scopes", help="grant only this scope, for stdio")
        parser.add_argument("--module", action="store_true", help="start `python -m mcp_django` instead of manage.py")

        token = parser.add_mutually_exclusive_group()
        token.add_argument(
            "--token-env", metavar="NAME", help="environment variable from which the client reads a token"
        )
        token.add_argument(
            "--with-token", action="store_true", help=f"write the token from the variable {TOKEN_VARIABLE}"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        client, described = CLIENT_PROGRAMS[options["client"]], get_settings().servers[options["server"]]
        name = options["name"] or build_client_name(described)
        path: Path | None = options["file"] or client.path(_get_project_directory())

        if options["skills"]:
            self._change_skill(client, options)
            return
        if client.format == "toml" and not toml_text.IS_INSTALLED:
            raise CommandError(
                f"The file of {client.title} is in TOML, which needs tomlkit: pip install 'mcp-django-channels[codex]'"
            )
        if options["remove"]:
            self._remove(client, name, path)
            return
        try:
            entry = client.build_entry(self._create_server(described, options), self._get_token_source(options))
        except UnsupportedConfiguration as problem:
            raise CommandError(str(problem)) from None

        if options["write"]:
            self._write(client, name, entry, path, private=options["with_token"])
        else:
            self._show(client, name, entry, path)
        self.stderr.write(_describe_rights(options), style_func=str)

    def _create_server(self, described: ServerSettings, options: dict[str, Any]) -> LocalServer | RemoteServer:
        if options["transport"] not in described.transports:
            alias, transport = options["server"], options["transport"]
            raise CommandError(f'MCP["SERVERS"]["{alias}"]["TRANSPORTS"] does not contain "{transport}"')
        if options["transport"] == "http":
            if options["user"] or options["scopes"]:
                raise CommandError("--user and --scope require stdio; over HTTP the token identifies the user")
            return RemoteServer(url=options["url"] or f"http://127.0.0.1:8000/{described.path}")
        if options["url"]:
            raise CommandError("--url requires --transport http")
        if options["user"] and (options["token_env"] or options["with_token"]):
            raise CommandError("--user cannot be combined with a token; use one of them")
        return _create_local_server(options)

    def _get_token_source(self, options: dict[str, Any]) -> TokenSource | None:
        if options["token_env"]:
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", options["token_env"]):
                raise CommandError("--token-env takes the name of a variable, not a token")
            return TokenSource(variable=options["token_env"])
        if not options["with_token"]:
            return None
        token = os.environ.get(TOKEN_VARIABLE, "")
        if not token:
            raise CommandError(f"--with-token requires a token in the variable {TOKEN_VARIABLE}, which is empty")
        return TokenSource(value=token)

    def _show(self, client: ClientProgram, name: str, entry: dict[str, Any], path: Path | None) -> None:
        self.stderr.write(f"Put this into {path or 'the file of your client'}, or use --write:", style_func=str)
        self.stdout.write(format_entry(client, name, entry))
        if client is CLIENT_PROGRAMS["claude-code"]:
            self.stderr.write(f"Or, only for yourself:\n{format_claude_command(name, entry)}", style_func=str)

    def _write(
        self, client: ClientProgram, name: str, entry: dict[str, Any], path: Path | None, *, private: bool
    ) -> None:
        text = FORMATS[client.format]
        file = self._open(client, path)
        try:
            if text.get(file.text, client.section, name) == entry:
                self.stderr.write(f"{name} is already in {file.path}", style_func=str)
                return
            changed = text.put(file.text, client.section, name, entry)
        except ValueError as problem:
            self.stdout.write(format_entry(client, name, entry))
            raise CommandError(f"{file.path} was left unchanged: {problem}. Add the above by hand") from None
        self._replace(file, changed, private=private)
        self.stderr.write(f"Wrote {name} to {file.path}. {client.next_step}".rstrip(), style_func=str)
        if private and file.is_readable_by_others():
            self.stderr.write(f"Other users can read the token in {file.path}: the mode of the existing file allows it")

    def _remove(self, client: ClientProgram, name: str, path: Path | None) -> None:
        file = self._open(client, path)
        try:
            changed = FORMATS[client.format].drop(file.text, client.section, name)
        except ValueError as problem:
            raise CommandError(f"{file.path} was left unchanged: {problem}. Remove {name} by hand") from None
        if changed == file.text:
            self.stderr.write(f"{name} is not in {file.path}", style_func=str)
            return
        self._replace(file, changed)
        self.stderr.write(f"Removed {name} from {file.path}", style_func=str)

    def _change_skill(self, client: ClientProgram, options: dict[str, Any]) -> None:
        """Write or remove the skill for coding agents. A folder with changes is kept without `--write`."""
        if not client.skills:
            raise CommandError(f"{client.title} reads no skills from a project; choose another client, or generic")
        directory = _get_project_directory() / client.skills
        try:
            if options["remove"]:
                changed, verb = remove_skill(directory, force=options["write"]), "Removed"
            else:
                changed, verb = install_skill(directory, replace=options["write"]), "Wrote"
        except ChangedSkill as problem:
            raise CommandError(f"{problem} was left unchanged: it has changes. Add --write to discard them") from None
        except OSError as problem:
            raise CommandError(f"{directory} was left unchanged: {problem.strerror}") from None
        told = f"{verb} the skill {SKILL_NAME}" if changed else f"Nothing to do for the skill {SKILL_NAME}"
        self.stderr.write(f"{told} in {directory}", style_func=str)

    def _open(self, client: ClientProgram, path: Path | None) -> SafeFile:
        if path is None:
            raise CommandError(f"The file of {client.title} is unknown; name it with --file")
        try:
            return SafeFile(path)
        except ValueError:
            raise CommandError(f"{path} was left unchanged: it is not valid UTF-8") from None
        except (OSError, RuntimeError) as problem:
            raise CommandError(f"{path} cannot be read: {problem}") from None

    def _replace(self, file: SafeFile, text: str, *, private: bool = False) -> None:
        try:
            backup = file.replace(text, private=private)
        except OSError as problem:
            raise CommandError(f"{file.path} was left unchanged: {problem}") from None
        if backup is not None:
            self.stderr.write(f"The previous content is in {backup}", style_func=str)


def _find_manage_py() -> Path | None:
    """Return the manage.py that was called, or None."""
    script = Path(sys.argv[0])
    return script.resolve() if script.name == "manage.py" and script.is_file() else None


def _get_project_directory() -> Path:
    manage = _find_manage_py()
    return manage.parent if manage else Path.cwd()


def _create_local_server(options: dict[str, Any]) -> LocalServer:
    manage, settings = _find_manage_py(), os.environ.get(SETTINGS_VARIABLE, "")
    directory = _get_project_directory()

    env: dict[str, str] = {}
    if manage is None or options["module"]:
        args = ["-m", "mcp_django", "--settings", settings, "--pythonpath", str(directory)]
    else:
        args = [str(manage), "mcp_stdio"]
        if settings not in manage.read_text(encoding="utf-8", errors="replace"):
            env[SETTINGS_VARIABLE] = settings  # different from the default in manage.py

    if options["server"] != "default":
        args += ["--server", options["server"]]
    if options["user"]:
        args += ["--user", options["user"]]
    for scope in options["scopes"] or ():
        args += ["--scope", scope]
    return LocalServer(command=sys.executable, args=args, env=env, cwd=str(directory))


def _describe_rights(options: dict[str, Any]) -> str:
    """Return a sentence about the principal that the written configuration leads to."""
    if options["transport"] == "http":
        return "The client gets the rights of the user who authorizes it, or of the token that it sends."
    scopes = f", within the scopes {', '.join(options['scopes'])}" if options["scopes"] else ""
    if options["user"]:
        return f"The client acts as the user {options['user']}, with that user's permissions{scopes}."
    if options["token_env"] or options["with_token"]:
        return "The client acts as the user of its token, within the scopes of the token."

    name = get_settings().local_user
    acting = f"It acts as the user {name}. " if name else ""
    return f"The client gets all rights: every tool, without permission checks. {acting}Use --user NAME to limit it."
