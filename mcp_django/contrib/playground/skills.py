"""Files of skills, read as the acting user and verified by the digests of the entry."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.utils.http import urlencode
from django.utils.translation import gettext as _

from mcp_django.contrib.playground.messages import format_json, send
from mcp_django.contrib.playground.page_state import PageState
from mcp_django.extensions.callers import DjangoPrincipal
from mcp_django.protocol.skills import InvalidSkill, SkillManifest, find_file_uris, parse_entry
from mcp_django.schema.skill_files import decode_contents, verify_skill_file

FILE_PARAMETER = "file"
ALL_FILES = "*"
"""Value of the parameter that verifies all files and shows none."""


@dataclass(slots=True)
class SkillFileRow:
    """File of a skill on the page."""

    path: str
    url: str
    size: int | None
    digest: str
    is_verified: bool = False
    problem: str = ""
    """Reason why the file could not be read or verified, in English."""
    text: str | None = None
    """Content of the chosen file; None for bytes that are not text."""
    is_chosen: bool = False


def build_skill_state(
    alias: str, principal: DjangoPrincipal, entry: Mapping[str, Any], query: Mapping[str, str], chosen: str
) -> PageState:
    """Return the files of a skill for the page; the chosen one is read, or all for `ALL_FILES`."""
    details: dict[str, Any] = {"skill_entry": format_json(entry)}
    try:
        _uri, manifest = parse_entry(entry)
    except InvalidSkill as problem:
        return PageState(details=details, error=_("This skill is invalid: %(problem)s") % {"problem": problem})

    uris = find_file_uris(entry)
    rows = _build_rows(manifest, uris, query)
    for row in rows:
        row.is_chosen = row.path == chosen
        if row.is_chosen or chosen == ALL_FILES:
            _read_file(alias, principal, manifest, row, uris[row.path])
    details |= {
        "skill_files": rows,
        "skill_is_dynamic": manifest.files is None,
        "verify_url": f"?{urlencode({**query, FILE_PARAMETER: ALL_FILES})}",
    }
    return PageState(details=details)


def _build_rows(manifest: SkillManifest, uris: Mapping[str, str], query: Mapping[str, str]) -> list[SkillFileRow]:
    known = {file.path: file for file in manifest.files or ()}
    return [
        SkillFileRow(
            path,
            f"?{urlencode({**query, FILE_PARAMETER: path})}",
            known[path].size if path in known else None,
            known[path].digest if path in known else "",
        )
        for path in uris
    ]


def _read_file(alias: str, principal: DjangoPrincipal, manifest: SkillManifest, row: SkillFileRow, uri: str) -> None:
    """Read a file, and verify its bytes by the entry."""
    exchange = send(alias, principal, "resources/read", {"uri": uri})
    if exchange.result is None:
        row.problem = exchange.error_text
        return
    try:
        data = decode_contents(dict(exchange.result), uri)
        row.text = _decode_text(data) if row.is_chosen else None
        verify_skill_file(manifest, row.path, data)
    except InvalidSkill as problem:
        row.problem = str(problem)
    else:
        row.is_verified = manifest.files is not None


def _decode_text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
