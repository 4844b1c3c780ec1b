"""Skills in tests: one skill as a host loads it, with every check of a host."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mcp_django.protocol.skills import (
    DIRECTORY_MEDIA_TYPE,
    GET_METHOD,
    LIST_METHOD,
    READ_DIRECTORY_METHOD,
    SKILL_FILE,
    InvalidSkill,
    SkillManifest,
    get_directory_uri,
    parse_entry,
)
from mcp_django.protocol.uri import quote_path
from mcp_django.schema.skill_files import decode_contents, is_same_json, verify_skill_file
from mcp_django.transports.inprocess.exchange import iter_entries

JSONObject = dict[str, Any]
Request = Callable[[str, Mapping[str, Any]], Awaitable[JSONObject]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillDocument:
    """A skill that was loaded and verified."""

    uri: str
    """URI of its `SKILL.md`."""
    frontmatter: Mapping[str, Any]
    files: Mapping[str, bytes]
    """Exact bytes of all files, by their paths; of a dynamic skill `SKILL.md` alone."""
    is_dynamic: bool
    """True if the entry has no digests, so that the files are not verified."""

    @property
    def text(self) -> str:
        """The text of `SKILL.md`, with its frontmatter."""
        return self.files[SKILL_FILE].decode()


async def load_skill(name: str, request: Request) -> SkillDocument:
    """Load the skill with this URI, path or name, and verify it.

    Raises AssertionError: there is no such skill, or the server breaks a rule.
    """
    entry = await _find_entry(name, request)
    try:
        uri, manifest = parse_entry(entry)
        got = (await request(GET_METHOD, {"uri": uri}))["skill"]
        if not is_same_json(got, entry):
            raise InvalidSkill(f"{uri}: {GET_METHOD} and {LIST_METHOD} have different entries")
        files = await _read_files(uri, manifest, request)
        if manifest.files is not None:
            await _check_directories(get_directory_uri(uri), set(files), request)
    except InvalidSkill as problem:
        raise AssertionError(f"skill {name!r}: {problem}") from None
    return SkillDocument(uri=uri, frontmatter=manifest.frontmatter, files=files, is_dynamic=manifest.files is None)


async def list_entries(request: Request) -> list[JSONObject]:
    """Return the entries of all pages of `skills/list`."""
    return [entry async for entry in iter_entries(request, LIST_METHOD, "skills")]


async def _find_entry(name: str, request: Request) -> JSONObject:
    entries = await list_entries(request)
    found = [entry for entry in entries if name in _get_names(entry)]
    if not found and "://" in name:  # Servers need not list each skill.
        entry: JSONObject = (await request(GET_METHOD, {"uri": name}))["skill"]
        return entry
    if len(found) != 1:
        known = ", ".join(sorted(str(entry.get("uri")) for entry in found or entries)) or "no skill"
        reason = "several skills have this name; give the URI" if found else "no visible skill has this name; known"
        raise AssertionError(f"skill {name!r}: {reason}: {known}")
    return found[0]


def _get_names(entry: JSONObject) -> set[str]:
    directory = str(entry["uri"]).removesuffix(f"/{SKILL_FILE}")
    return {entry["uri"], directory, directory.partition("://")[2], entry["frontmatter"].get("name")}


async def _read_files(uri: str, manifest: SkillManifest, request: Request) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for path in [SKILL_FILE] if manifest.files is None else [file.path for file in manifest.files]:
        file_uri = f"{get_directory_uri(uri)}/{quote_path(path)}"
        data = decode_contents(await request("resources/read", {"uri": file_uri}), file_uri)
        verify_skill_file(manifest, path, data)
        files[path] = data
    return files


async def _check_directories(root: str, paths: set[str], request: Request) -> None:
    """Walk through the directories. Raises InvalidSkill unless they have exactly the files of the entry."""
    found: set[str] = set()
    waiting = [root]
    while waiting:
        directory = waiting.pop()
        async for child in iter_entries(request, READ_DIRECTORY_METHOD, "resources", {"uri": directory}):
            if child.get("mimeType") == DIRECTORY_MEDIA_TYPE:
                waiting.append(child["uri"])
            else:
                found.add(child["uri"])

    expected = {f"{root}/{quote_path(path)}" for path in paths}
    if found != expected:
        different = ", ".join(sorted(found ^ expected))
        raise InvalidSkill(f"{root}: the entry and {READ_DIRECTORY_METHOD} have different files: {different[:500]}")
