"""Skills of a server: entries, and files that are verified at each read.

A file is returned only if its bytes have the size and the digest of the entry that the client holds. The entry of
another server, or a changed file, never gets through.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import mcp_types as types

from mcp_django.client import failures
from mcp_django.client.errors import CallError, InvalidAnswer
from mcp_django.client.session.requests import RequestSender
from mcp_django.file_folders import write_folder
from mcp_django.protocol.display_text import clean_line
from mcp_django.protocol.log_text import get_logger
from mcp_django.protocol.skills import (
    GET_METHOD,
    LIST_METHOD,
    SKILL_FILE,
    SKILLS_IDENTIFIER,
    InvalidSkill,
    SkillFile,
    SkillManifest,
    find_file_uris,
    parse_entry,
)
from mcp_django.schema.skill_files import decode_contents, verify_skill_file

logger = get_logger("mcp_django.client")


class ListSkillsResult(types.PaginatedResult):
    """Result of `skills/list`, with its entries as they were sent."""

    skills: list[Any]


class SkillReader:
    """Requests for the skills of one server."""

    def __init__(self, sender: RequestSender, get_capabilities: Callable[[], types.ServerCapabilities]) -> None:
        self._sender = sender
        self._get_capabilities = get_capabilities

    def has_skills(self) -> bool:
        """Return True if the connected server has the extension."""
        return SKILLS_IDENTIFIER in (self._get_capabilities().extensions or {})

    async def list_skills(self, timeout: float | None) -> list["ClientSkill"]:
        """Return the skills of all pages, without invalid entries and repeated URIs."""
        if not self.has_skills():
            return []
        skills: dict[str, ClientSkill] = {}
        for entry in await self._sender.list_all(LIST_METHOD, "skills", ListSkillsResult, timeout):
            try:
                skill = self._build(entry)
            except InvalidSkill as problem:
                logger.warning("Invalid skill of a server left out: %s", clean_line(str(problem)))
                continue
            skills.setdefault(skill.uri, skill)
        return list(skills.values())

    async def get_skill(self, uri: str, timeout: float | None) -> "ClientSkill":
        """Return the skill at the URI of its `SKILL.md`, listed or not."""
        if not self.has_skills():
            raise CallError(
                failures.METHOD_NOT_FOUND, f"The server has no skills, so it cannot serve {clean_line(uri[:200])}"
            )
        result = await self._sender.send(GET_METHOD, {"uri": uri}, timeout=timeout)
        try:
            skill = self._build(result.get("skill"))
        except InvalidSkill as problem:
            raise InvalidAnswer(f"The entry of a skill is invalid: {problem}") from None
        if skill.uri != uri:
            raise InvalidAnswer(f"The server sent the skill {skill.uri[:200]!r} for {uri[:200]!r}")
        return skill

    async def read(self, uri: str, timeout: float | None) -> bytes:
        """Return the bytes of one file. Raises InvalidSkill for a malformed result."""
        return decode_contents(await self._sender.send("resources/read", {"uri": uri}, timeout=timeout), uri)

    def _build(self, entry: Any) -> "ClientSkill":
        uri, manifest = parse_entry(entry)
        return ClientSkill(self, uri, manifest, find_file_uris(entry))


class ClientSkill:
    """A skill of a server, as `client.list_skills` or `client.get_skill` returned it.

    The skill keeps its entry. After a change on the server, reading raises InvalidAnswer: get the skill again, and ask
    the user again. Treat the text like any text of the server. Nothing is executed.

    Methods that send requests raise ClientError.
    """

    def __init__(self, reader: SkillReader, uri: str, manifest: SkillManifest, file_uris: Mapping[str, str]) -> None:
        self._reader = reader
        self._manifest = manifest
        self._file_uris = file_uris
        self.uri = uri
        """URI of its `SKILL.md`."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.uri[:200]!r}>"

    @property
    def name(self) -> str:
        """The name, of lowercase letters, digits and hyphens. Two skills may share one."""
        return self._manifest.name

    @property
    def description(self) -> str:
        """The purpose of the skill, for models."""
        return self._manifest.description

    @property
    def frontmatter(self) -> Mapping[str, Any]:
        """All fields of the frontmatter."""
        return self._manifest.frontmatter

    @property
    def files(self) -> tuple[SkillFile, ...] | None:
        """All files, with digests and sizes; None for a dynamic skill, which cannot be verified."""
        return self._manifest.files

    async def read(self, path: str = SKILL_FILE, *, timeout: float | None = None) -> bytes:
        """Return the exact bytes of a file.

        Raises:
            InvalidAnswer: The bytes, or the frontmatter, differ from the entry.
            ValueError: The skill has no such file. A dynamic skill has `SKILL.md` only.
        """
        uri = self._file_uris.get(path)
        if uri is None:
            raise ValueError(f"The skill {self.name} has no file {path!r:.200}")
        try:
            data = await self._reader.read(uri, timeout)
            # YAML of a server takes a moment to parse.
            await asyncio.to_thread(verify_skill_file, self._manifest, path, data)
        except InvalidSkill as problem:
            raise InvalidAnswer(f"The skill {self.uri[:200]} failed its verification: {problem}") from None
        return data

    async def to_directory(self, directory: str | Path, *, replace: bool = False, timeout: float | None = None) -> Path:
        """Read all files, write them to a folder with the name of the skill, and return the folder.

        The folder is created below `directory`, and only after all files were verified. Its paths come from the entry:
        one that leads out of the folder makes the entry invalid. No symbolic link is created or followed.

        Raises:
            FileExistsError: The folder exists, and `replace` is not set, or it is a symbolic link.
            InvalidAnswer: A file differs from the entry.
        """
        files = {path: await self.read(path, timeout=timeout) for path in self._file_uris}
        target = Path(directory) / self.name
        await asyncio.to_thread(write_folder, target, files, replace=replace)
        return target


class BlockingClientSkill:
    """A `ClientSkill` with blocking methods, returned by a blocking client."""

    def __init__(self, skill: ClientSkill, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self.skill = skill
        """The wrapped skill, with its name, description, frontmatter and files."""
        self._run = run

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.skill!r}>"

    def read(self, path: str = SKILL_FILE, *, timeout: float | None = None) -> bytes:
        """Return the exact bytes of a file, like `ClientSkill.read`."""
        data: bytes = self._run(self.skill.read(path, timeout=timeout))
        return data

    def to_directory(self, directory: str | Path, *, replace: bool = False, timeout: float | None = None) -> Path:
        """Write all files to a folder, like `ClientSkill.to_directory`."""
        target: Path = self._run(self.skill.to_directory(directory, replace=replace, timeout=timeout))
        return target
