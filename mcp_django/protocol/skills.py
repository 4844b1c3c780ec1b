"""Skills on the wire: the extension `io.modelcontextprotocol/skills`, its entries, and their rules.

A skill is a directory with a `SKILL.md`, as agentskills.io defines it. An entry names that file, repeats its
frontmatter and lists each file of the directory with its digest and size. Servers, proxies and clients share these
values.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_to_bytes

from mcp_django.protocol.uri import quote_path

SKILLS_IDENTIFIER = "io.modelcontextprotocol/skills"
LIST_METHOD, GET_METHOD, READ_DIRECTORY_METHOD = "skills/list", "skills/get", "resources/directory/read"
SKILL_FILE = "SKILL.md"
DIRECTORY_MEDIA_TYPE = "inode/directory"
DYNAMIC = "dynamic"
"""Value of `resources` for a skill whose files change from one read to the next."""
MANIFEST_KEY = "mcp_django.skills.manifest"
"""Key of the manifest in the metadata of the resource of a `SKILL.md`."""
MAX_SKILL_FILES = 512
MAX_SKILL_BYTES = 16 * 1024 * 1024
MAX_NAME_CHARACTERS, MAX_DESCRIPTION_CHARACTERS, MAX_COMPATIBILITY_CHARACTERS = 64, 1024, 500
RESERVED_METADATA_PREFIX = "io.modelcontextprotocol/"
_SUFFIX = "/" + SKILL_FILE
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://")


class InvalidSkill(ValueError):
    """A skill or entry that breaks the rules; the text has the reason."""


@dataclass(frozen=True, slots=True)
class SkillFile:
    """A file of a skill, by its path below the directory of the skill."""

    path: str
    """Path in Unicode, with "/" between its names."""
    digest: str
    """Digest of the exact bytes, as `compute_digest` returns it."""
    size: int
    """Size in bytes."""


@dataclass(frozen=True, slots=True)
class SkillManifest:
    """The frontmatter and the files of a skill, without its place on a server."""

    frontmatter: Mapping[str, Any]
    files: tuple[SkillFile, ...] | None
    """All files, `SKILL.md` included; None for a dynamic skill."""

    @property
    def name(self) -> str:
        return str(self.frontmatter["name"])

    @property
    def description(self) -> str:
        return str(self.frontmatter["description"])

    def to_entry(self, uri: str) -> dict[str, Any]:
        """Return the entry of the skill whose `SKILL.md` is at `uri`."""
        root = uri.removesuffix(SKILL_FILE)
        files: Any = DYNAMIC
        if self.files is not None:
            files = [
                {"uri": root + quote_path(file.path), "digest": file.digest, "size": file.size} for file in self.files
            ]
        return {"uri": uri, "frontmatter": dict(self.frontmatter), "resources": files}


def compute_digest(data: bytes) -> str:
    """Return the SHA-256 digest of `data` as an entry contains it."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def is_skill_name(name: object) -> bool:
    """Return True for a name of 1 to 64 lowercase letters, digits and single hyphens between them."""
    return isinstance(name, str) and len(name) <= MAX_NAME_CHARACTERS and _NAME.fullmatch(name) is not None


def find_problems(frontmatter: Mapping[str, Any]) -> Iterator[str]:
    """Yield the rules that a frontmatter breaks."""
    name, description = frontmatter.get("name"), frontmatter.get("description")
    if not is_skill_name(name):
        yield f"name {name!r:.80} must have 1 to 64 lowercase letters, digits and single hyphens between them"
    if not isinstance(description, str) or not 1 <= len(description) <= MAX_DESCRIPTION_CHARACTERS:
        yield f"description must be a text of 1 to {MAX_DESCRIPTION_CHARACTERS} characters"
    if "compatibility" in frontmatter:
        compatibility = frontmatter["compatibility"]
        if not isinstance(compatibility, str) or not 1 <= len(compatibility) <= MAX_COMPATIBILITY_CHARACTERS:
            yield f"compatibility must be a text of 1 to {MAX_COMPATIBILITY_CHARACTERS} characters"

    yield from _find_metadata_problems(frontmatter)


def _find_metadata_problems(frontmatter: Mapping[str, Any]) -> Iterator[str]:
    for field in ("license", "allowed-tools"):
        if field in frontmatter and not isinstance(frontmatter[field], str):
            yield f"{field} must be a text"
    if "metadata" not in frontmatter:
        return

    metadata = frontmatter["metadata"]
    if not isinstance(metadata, Mapping) or not all(isinstance(value, str) for value in metadata.values()):
        yield "metadata must map texts to texts; quote numbers, dates and booleans"
    elif any(key.startswith(RESERVED_METADATA_PREFIX) for key in metadata):
        yield f"metadata has a key with the reserved prefix {RESERVED_METADATA_PREFIX}"


def get_directory_uri(uri: str) -> str:
    """Return the URI of the directory of a `SKILL.md`, without a trailing slash. Raises InvalidSkill."""
    directory = uri.removesuffix(_SUFFIX)
    if directory == uri or not _SCHEME.match(directory) or not get_last_segment(directory):
        raise InvalidSkill(f"{uri[:200]!r} must be the URI of a SKILL.md in a directory with a name")
    return directory


def get_last_segment(directory_uri: str) -> str:
    """Return the decoded name of a directory."""
    _, _, path = directory_uri.partition("://")
    return decode(path.rpartition("/")[2]) or ""


def decode(text: str) -> str | None:
    """Return text with its percent-encodings decoded; None unless the bytes are UTF-8."""
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeError:
        return None


def find_path(directory_uri: str, uri: str) -> str | None:
    """Return the decoded path of a file below a directory; None for any other URI.

    Segments that lead elsewhere are refused: empty ones, `.` and `..`, and names with a slash, backslash or NUL.
    """
    prefix = f"{directory_uri}/"
    if not uri.startswith(prefix) or "?" in uri or "#" in uri:
        return None
    segments = [decode(segment) for segment in uri.removeprefix(prefix).split("/")]
    if any(segment is None or not is_safe_segment(segment) for segment in segments):
        return None
    return "/".join(filter(None, segments))


def is_safe_segment(name: str) -> bool:
    """Return True for a single name that leads nowhere else on any system."""
    return name not in ("", ".", "..") and not any(char in name for char in "/\\\0")


def parse_entry(entry: Any) -> tuple[str, SkillManifest]:
    """Return the URI and the manifest of an entry that a server sent.

    Raises InvalidSkill for an entry that a host must not load.
    """
    if not isinstance(entry, Mapping) or not isinstance(entry.get("uri"), str):
        raise InvalidSkill("an entry must be an object with the URI of its SKILL.md")
    uri, frontmatter = entry["uri"], entry.get("frontmatter")
    directory = get_directory_uri(uri)
    if not isinstance(frontmatter, Mapping):
        raise InvalidSkill(f"{uri[:200]}: the entry has no frontmatter")

    problems = list(find_problems(frontmatter))
    if not problems and frontmatter["name"] != get_last_segment(directory):
        problems = [f"name {frontmatter['name']!r} differs from the directory {get_last_segment(directory)!r:.80}"]
    if problems:
        raise InvalidSkill(f"{uri[:200]}: {'; '.join(problems)}")

    resources = entry.get("resources")
    if resources == DYNAMIC:
        return uri, SkillManifest(dict(frontmatter), None)
    if not isinstance(resources, Sequence) or isinstance(resources, str):
        raise InvalidSkill(f'{uri[:200]}: resources must be a list of files, or "{DYNAMIC}"')
    return uri, SkillManifest(dict(frontmatter), _parse_files(directory, resources))


def find_file_uris(entry: Mapping[str, Any]) -> dict[str, str]:
    """Return the URIs of the files of a valid entry, as the server spells them, by their paths."""
    directory, resources = get_directory_uri(entry["uri"]), entry["resources"]
    if resources == DYNAMIC:
        return {SKILL_FILE: entry["uri"]}
    return {find_path(directory, one["uri"]) or "": one["uri"] for one in resources}


def _parse_files(directory: str, resources: Sequence[Any]) -> tuple[SkillFile, ...]:
    files: dict[str, SkillFile] = {}
    for resource in resources:
        uri, digest, size = (
            (resource.get(key) for key in ("uri", "digest", "size"))
            if isinstance(resource, Mapping)
            else (None, None, None)
        )
        path = find_path(directory, uri) if isinstance(uri, str) else None
        if path is None or path in files:
            raise InvalidSkill(f"{directory[:200]}: {uri!r:.200} is outside of the directory, or listed twice")
        if not isinstance(digest, str) or not _DIGEST.fullmatch(digest) or type(size) is not int or size < 0:
            raise InvalidSkill(f"{directory[:200]}: the digest or the size of {path!r:.200} is invalid")
        files[path] = SkillFile(path, digest, size)

    if SKILL_FILE not in files:
        raise InvalidSkill(f"{directory[:200]}: the files lack {SKILL_FILE}")
    if len(files) > MAX_SKILL_FILES or sum(file.size for file in files.values()) > MAX_SKILL_BYTES:
        raise InvalidSkill(f"{directory[:200]}: more than {MAX_SKILL_FILES} files or {MAX_SKILL_BYTES} bytes")
    return tuple(files.values())
