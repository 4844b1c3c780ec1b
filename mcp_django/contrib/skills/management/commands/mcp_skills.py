"""`manage.py mcp_skills`: list, verify and add skills."""

from argparse import ArgumentParser
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from asgiref.sync import async_to_sync
from django.apps import apps
from django.core.exceptions import ValidationError
from django.core.management.base import CommandError

from mcp_django.contrib.skills.models import StoredSkill
from mcp_django.contrib.skills.packages import SkillPackage, read_package, write_package
from mcp_django.contrib.skills.provider import FOLDER
from mcp_django.extensions.calls import Server
from mcp_django.extensions.errors import MCPError
from mcp_django.extensions.operators import CleanCommand, add_caller_options, get_command_principal
from mcp_django.protocol.skills import LIST_METHOD, SKILL_FILE, SKILLS_IDENTIFIER, InvalidSkill
from mcp_django.schema.frontmatter import find_ambiguous_values
from mcp_django.testing import TestClient
from mcp_django.testing.skill_document import list_entries
from mcp_django.wiring import get_server, list_aliases


class Command(CleanCommand):
    """List the skills of the servers, verify them as a client does, or add one to an app.

    `verify` reads each file of each skill and compares it with its entry. With a folder or an archive, it checks that
    instead of the servers. The exit code is 1 if there is a problem. `add` checks a skill and copies it.
    """

    help = "List, verify or add skills: mcp_skills verify, mcp_skills add refunds.zip --app shop"

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("action", choices=("list", "verify", "add"))
        parser.add_argument("source", nargs="?", type=Path, help="a folder with a SKILL.md, or a ZIP archive of one")
        parser.add_argument("--server", choices=list_aliases(), help="one server's alias (default: all with skills)")
        add_caller_options(parser, user_help="list and verify as this user (default: all permissions)")
        parser.add_argument("--json", action="store_true", help="list the entries as JSON")
        place = parser.add_mutually_exclusive_group()
        place.add_argument("--app", metavar="LABEL", help="add to the folder skills/ of this app")
        place.add_argument("--directory", type=Path, help="add to this folder of skills")
        place.add_argument(
            "--stored", metavar="PATH", help="add to the admin, as a draft at this path, such as shop/refunds"
        )
        parser.add_argument("--replace", action="store_true", help="replace a skill of the same name")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["action"] == "add":
            if options["source"] is None or not (options["app"] or options["directory"] or options["stored"]):
                raise CommandError("add requires a folder or a ZIP archive, and --app, --directory or --stored")
            package = _read(options["source"])
            self._report(package)
            if options["stored"]:
                self._store(package, options)
            else:
                self._write(package, options)
        elif options["action"] == "verify" and options["source"] is not None:
            self._report(_read(options["source"]))
        else:
            self._handle_servers(options)

    def _handle_servers(self, options: dict[str, Any]) -> None:
        principal = get_command_principal(options["user"], options["scopes"])
        servers = dict(_iterate_servers(options["server"]))
        clients = {alias: TestClient(server, principal=principal) for alias, server in servers.items()}
        entries = {alias: async_to_sync(_list_entries)(client) for alias, client in clients.items()}
        if options["action"] == "verify":
            self._verify(clients, entries)
        elif options["json"]:
            self.write_json(entries)
        else:
            self._list(entries)

    def _list(self, entries: Mapping[str, list[dict[str, Any]]]) -> None:
        for alias, found in entries.items():
            self.stdout.write(f"{alias}: {len(found)} skills", self.style.MIGRATE_HEADING)
            for entry in found:
                self.stdout.write(f"  {entry['uri']}  ({_describe_files(entry['resources'])})")
                self.stdout.write(f"    {entry['frontmatter']['description']}")

    def _verify(self, clients: Mapping[str, TestClient], entries: Mapping[str, list[dict[str, Any]]]) -> None:
        problems = 0
        for alias, client in clients.items():
            for text in _find_folder_problems(client.server):
                problems += 1
                self.stderr.write(text)
            for entry in entries[alias]:
                try:
                    skill = async_to_sync(client.skill)(entry["uri"])
                except (AssertionError, MCPError) as problem:
                    problems += 1
                    self.stderr.write(f"{alias}: {problem}")
                else:
                    size = sum(map(len, skill.files.values()))
                    state = "dynamic, not verifiable" if skill.is_dynamic else f"{len(skill.files)} files, {size} bytes"
                    self.stdout.write(f"{alias}: {skill.uri}: {state}")
        if problems:
            raise CommandError(f"{problems} problems found")

    def _store(self, package: SkillPackage, options: dict[str, Any]) -> None:
        """Store a skill as a draft, or as a new version of a row."""
        path, server = options["stored"], options["server"] or ""
        row = StoredSkill._default_manager.filter(path=path, server=server).first()
        if row is not None and not options["replace"]:
            raise CommandError(f"The stored skill {row} exists; use --replace to add a version")
        row = row or StoredSkill(path=path, server=server)
        try:
            row.replace_files(package)
        except ValidationError as problem:
            raise CommandError(f"{path}: {' '.join(problem.messages)}") from None
        row.record(note="mcp_skills add")
        state = "published" if row.enabled else "a draft; publish it in the admin"
        self.stdout.write(f"Stored {row}: {state}", self.style.SUCCESS)

    def _write(self, package: SkillPackage, options: dict[str, Any]) -> None:
        directory: Path = options["directory"] or _get_app_directory(options["app"])
        try:
            target = write_package(package, directory, replace=options["replace"])
        except FileExistsError as problem:
            raise CommandError(f"{problem}; use --replace to replace it") from None
        except OSError as problem:
            raise CommandError(f"{directory} cannot be written: {problem.strerror}") from None
        self.stdout.write(f"Added {target}", self.style.SUCCESS)

    def _report(self, package: SkillPackage) -> None:
        """Write the size of a valid skill, and warnings about it."""
        name, size = package.manifest.name, sum(map(len, package.files.values()))
        self.stdout.write(f"{name}: valid, {len(package.files)} files, {size} bytes")
        if package.skipped:
            self.stderr.write(f"{name}: never served, so left out: {', '.join(package.skipped)[:500]}")
        if values := find_ambiguous_values(package.files[SKILL_FILE]):
            self.stderr.write(f"{name}: YAML 1.1 reads some values differently; quote them: {', '.join(values)[:200]}")


def _iterate_servers(alias: str | None) -> Iterator[tuple[str, Server]]:
    """Yield the servers with the extension. Raises CommandError without any."""
    found = 0
    for one in [alias] if alias else list_aliases():
        server = get_server(one)
        if any(extension.identifier == SKILLS_IDENTIFIER for extension in server.extensions.extensions):
            found += 1
            yield one, server
    if not found:
        raise CommandError(
            "No server has the extension of skills; add mcp_django.contrib.skills.SkillsExtension to EXTENSIONS"
        )


async def _list_entries(client: TestClient) -> list[dict[str, Any]]:
    try:
        return await list_entries(client.request)
    except MCPError as problem:
        raise CommandError(f"{LIST_METHOD} failed: {problem.message}") from None


def _find_folder_problems(server: Server) -> Iterator[str]:
    """Yield the problems of folders that are not served."""
    for provider in server.providers:
        for message in getattr(provider, "check", tuple)():
            if str(message.id).startswith("mcp_skills.E"):
                yield f"{server.alias}: {message.msg}"


def _describe_files(resources: Any) -> str:
    if not isinstance(resources, list):
        return str(resources)
    return f"{len(resources)} files, {sum(file['size'] for file in resources)} bytes"


def _get_app_directory(label: str) -> Path:
    try:
        return Path(apps.get_app_config(label).path) / FOLDER
    except LookupError:
        raise CommandError(f"Unknown app {label!r}; give the label of an installed app") from None


def _read(source: Path) -> SkillPackage:
    try:
        return read_package(source)
    except InvalidSkill as problem:
        raise CommandError(f"{source}: {problem}") from None
    except OSError as problem:
        raise CommandError(f"{source} cannot be read: {problem.strerror}") from None
