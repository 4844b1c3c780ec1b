"""Files of skills as a host checks them: exact bytes, digest, size, and the frontmatter of `SKILL.md`."""

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from mcp_django.protocol.skills import SKILL_FILE, InvalidSkill, SkillManifest, compute_digest
from mcp_django.schema.frontmatter import FrontmatterError, parse_frontmatter


def decode_contents(result: Mapping[str, Any], uri: str) -> bytes:
    """Return the bytes of a result of `resources/read` for one file.

    Raises InvalidSkill unless the result has exactly one content, and it is that of `uri`.
    """
    contents = result.get("contents")
    if not isinstance(contents, list) or len(contents) != 1 or not isinstance(contents[0], Mapping):
        raise InvalidSkill(f"{uri[:200]}: the result must have one content")
    content = contents[0]
    if content.get("uri") != uri:
        raise InvalidSkill(f"{uri[:200]}: the content has the URI {content.get('uri')!r:.200}")

    text, blob = content.get("text"), content.get("blob")
    if isinstance(text, str) and blob is None:
        try:
            return text.encode()
        except UnicodeError:
            raise InvalidSkill(f"{uri[:200]}: the text is not Unicode") from None
    if not isinstance(blob, str) or text is not None:
        raise InvalidSkill(f"{uri[:200]}: the content must have a text or a blob")
    try:
        return base64.b64decode(blob, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidSkill(f"{uri[:200]}: the blob is not Base64") from None


def verify_bytes(manifest: SkillManifest, path: str, data: bytes) -> None:
    """Check the size and the digest of a file. A dynamic skill has none. Raises InvalidSkill."""
    if manifest.files is None:
        return
    expected = next((file for file in manifest.files if file.path == path), None)
    if expected is None:
        raise InvalidSkill(f"{manifest.name}: {path!r:.200} is not a file of the skill")
    if len(data) != expected.size:
        raise InvalidSkill(f"{manifest.name}: {path!r:.200} has {len(data)} bytes instead of {expected.size}")
    if compute_digest(data) != expected.digest:
        raise InvalidSkill(f"{manifest.name}: the digest of {path!r:.200} differs from the entry")


def verify_skill_file(manifest: SkillManifest, path: str, data: bytes) -> None:
    """Check a file like `verify_bytes`, and the frontmatter of `SKILL.md`, also of a dynamic skill.

    Raises InvalidSkill.
    """
    verify_bytes(manifest, path, data)
    if path != SKILL_FILE:
        return
    try:
        frontmatter = parse_frontmatter(data)
    except FrontmatterError as problem:
        raise InvalidSkill(f"{manifest.name}: {SKILL_FILE}: {problem}") from None
    if not is_same_json(frontmatter, dict(manifest.frontmatter)):
        raise InvalidSkill(f"{manifest.name}: the frontmatter of {SKILL_FILE} differs from the entry")


def is_same_json(first: Any, second: Any) -> bool:
    """Return True for equal values of JSON, in which `true` is no number."""
    if isinstance(first, bool) or isinstance(second, bool):
        return first is second
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(is_same_json(first[key], second[key]) for key in first)
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(is_same_json, first, second))
    return bool(first == second)
