"""Descriptive values: implementations, icons, annotations, log levels.

``to_wire()`` returns the richest form; a Revision reduces it. Optional members that are None are left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

_ICON_SOURCE = re.compile(r"(?:https?://|data:).", re.IGNORECASE | re.DOTALL)
_ICON_FIELDS = ("src", "mimeType", "sizes", "theme")
_ICON_SIZE = re.compile(r"[1-9][0-9]*x[1-9][0-9]*|any")


class LoggingLevel(StrEnum):
    """Severities of log messages, lowest first (RFC 5424)."""

    DEBUG = "debug"
    INFO = "info"
    NOTICE = "notice"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"
    ALERT = "alert"
    EMERGENCY = "emergency"

    @property
    def rank(self) -> int:
        """Index among the levels, lowest first. The levels themselves compare as text."""
        return LOG_LEVELS.index(self.value)


LOG_LEVELS: tuple[str, ...] = tuple(level.value for level in LoggingLevel)
"""The levels in wire form, lowest first."""


class Role(StrEnum):
    """Sender or audience of a message."""

    USER = "user"
    ASSISTANT = "assistant"


@dataclass(frozen=True, slots=True)
class Icon:
    """An icon of a server, tool, prompt or resource.

    Raises:
        ValueError: `src` is neither an http(s) nor a data URI, or `sizes` or `theme` are invalid.
    """

    src: str
    """Absolute ``https:`` or ``http:`` URL, or a ``data:`` URI.

    Clients reject other URLs.
    """
    mime_type: str | None = None
    sizes: Sequence[str] = ()
    """Sizes like ``"48x48"``, or ``"any"`` for a scalable image."""
    theme: Literal["light", "dark"] | None = None
    """Background that the icon is made for."""

    def __post_init__(self) -> None:
        if not _ICON_SOURCE.match(self.src):
            raise ValueError(f"icon {self.src[:80]!r}: src must be an absolute http(s) URL or a data URI")
        if isinstance(self.sizes, str):
            raise ValueError('icon sizes are a list, like ["48x48"]')
        for size in self.sizes:
            if not _ICON_SIZE.fullmatch(size):
                raise ValueError(f'icon size {size!r} must look like "48x48", or be "any"')
        if self.theme not in (None, "light", "dark"):
            raise ValueError(f"icon theme {self.theme!r} must be 'light' or 'dark'")

    @classmethod
    def of(cls, given: Icon | Mapping[str, Any] | str) -> Icon:
        """Convert an icon, its wire object, or its URL.

        Raises:
            ValueError: as for an icon; an unknown name, or a value of the wrong type.
        """
        if isinstance(given, Icon):
            return given
        wire: dict[str, Any] = {"src": given} if isinstance(given, str) else dict(given)

        unknown = [key for key in wire if key not in _ICON_FIELDS]
        if unknown:
            raise ValueError(f"unknown icon field {unknown[0]!r}; known are {', '.join(_ICON_FIELDS)}")
        if not isinstance(wire.get("src"), str):
            raise ValueError("an icon needs a src of type text")
        if not isinstance(wire.get("mimeType", ""), str):
            raise ValueError("icon mimeType must be text")

        sizes = wire.get("sizes", ())
        if not isinstance(sizes, str) and not all(isinstance(size, str) for size in sizes):
            raise ValueError('icon sizes are a list, like ["48x48"]')
        return cls(
            wire["src"], wire.get("mimeType"), sizes if isinstance(sizes, str) else tuple(sizes), wire.get("theme")
        )

    def to_wire(self) -> dict[str, Any]:
        """Return the wire object."""
        wire: dict[str, Any] = {"src": self.src}
        if self.mime_type is not None:
            wire["mimeType"] = self.mime_type
        if self.sizes:
            wire["sizes"] = list(self.sizes)
        if self.theme is not None:
            wire["theme"] = self.theme
        return wire


@dataclass(frozen=True, slots=True)
class Implementation:
    """Name and version of a server or client."""

    name: str
    version: str
    title: str | None = None
    description: str | None = None
    icons: Sequence[Icon] = ()
    website_url: str | None = None

    def to_wire(self) -> dict[str, Any]:
        """Return the wire object."""
        wire: dict[str, Any] = {"name": self.name, "version": self.version}
        for key, value in (("title", self.title), ("description", self.description), ("websiteUrl", self.website_url)):
            if value is not None:
                wire[key] = str(value)
        if self.icons:
            wire["icons"] = [icon.to_wire() for icon in self.icons]
        return wire


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAnnotations:
    """Hints about a tool. Clients must not trust them.

    None leaves a hint out, so that its default applies.
    """

    title: str | None = None
    read_only: bool | None = None
    """True if the tool changes nothing. Default: False."""
    destructive: bool | None = None
    """True if the tool may destroy or overwrite data. Default: True.

    Meaningful only if the tool is not read-only.
    """
    idempotent: bool | None = None
    """True if a repeated call has no further effect. Default: False.

    Meaningful only if the tool is not read-only.
    """
    open_world: bool | None = None
    """True if the tool accesses external systems, like the web. Default: True."""

    @classmethod
    def of(cls, given: ToolAnnotations | Mapping[str, Any] | None) -> ToolAnnotations | None:
        """Convert annotations, their wire object, or None.

        Raises:
            ValueError: an unknown name, or a value of the wrong type.
        """
        if given is None or isinstance(given, ToolAnnotations):
            return given
        for key, value in given.items():
            if key not in _HINTS:
                raise ValueError(f"unknown tool annotation {key!r}; known are {', '.join(_HINTS)}")
            if value is not None and not isinstance(value, str if key == "title" else bool):
                raise ValueError(f"tool annotation {key!r} must be {'text' if key == 'title' else 'true or false'}")
        return cls(**{_HINTS[key]: value for key, value in given.items()})

    def to_wire(self) -> dict[str, Any]:
        """Return the wire object."""
        found = ((key, getattr(self, name)) for key, name in _HINTS.items())
        return {key: str(value) if key == "title" else value for key, value in found if value is not None}


_WIRE_NAMES = ("title", "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
_HINTS = dict(zip(_WIRE_NAMES, (field.name for field in fields(ToolAnnotations)), strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotations:
    """Hints about content or a resource: audience, importance, and age.

    Raises:
        ValueError: an unknown role, or a priority outside 0…1.
    """

    audience: Sequence[Role | str] | None = None
    priority: float | None = None
    """Importance: 1 is required, 0 is optional."""
    last_modified: datetime | str | None = None
    """Time of the last change, or its ISO 8601 text."""

    @classmethod
    def of(cls, given: Annotations | Mapping[str, Any] | None) -> Annotations | None:
        """Convert annotations, their wire object, or None.

        Raises:
            ValueError: as for annotations, and for an unknown name.
        """
        if given is None or isinstance(given, Annotations):
            return given
        unknown = [key for key in given if key not in _ANNOTATIONS]
        if unknown:
            raise ValueError(f"unknown annotation {unknown[0]!r}; known are {', '.join(_ANNOTATIONS)}")
        return cls(**{_ANNOTATIONS[key]: value for key, value in given.items()})

    def __post_init__(self) -> None:
        if isinstance(self.audience, str):
            raise ValueError('annotations: audience is a list, like ["user"]')
        for role in self.audience or ():
            if role not in _ROLES:
                raise ValueError(f"annotations: audience {role!r} must be 'user' or 'assistant'")
        if self.priority is not None and not 0 <= self.priority <= 1:
            raise ValueError(f"annotations: priority {self.priority!r} must be between 0 and 1")

    def to_wire(self) -> dict[str, Any]:
        """Return the wire object."""
        wire: dict[str, Any] = {}
        if self.audience is not None:
            wire["audience"] = [str(role) for role in self.audience]
        if self.priority is not None:
            wire["priority"] = self.priority
        if self.last_modified is not None:
            moment = self.last_modified
            wire["lastModified"] = moment.isoformat() if isinstance(moment, datetime) else moment
        return wire


_ANNOTATIONS = {"audience": "audience", "priority": "priority", "lastModified": "last_modified"}
_ROLES = frozenset(role.value for role in Role)
