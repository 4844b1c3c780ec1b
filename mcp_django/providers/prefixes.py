"""Name prefixes: names and URIs of the primitives of another source.

Tools and prompts become `<prefix>__<name>`. URIs stay the same, because results refer to them, unless a URI prefix is
given. Then `city://zurich` becomes `<uri_prefix>+city://zurich`. This keeps the path, works for templates as well, and
can be reverted. Pages of apps keep their scheme, which clients require: `ui://cart` becomes `ui://<uri_prefix>+cart`.
"""

import re
from dataclasses import dataclass

from mcp_django.conf.readers import NAME_PREFIX_PATTERN, SCHEME_PREFIX_PATTERN
from mcp_django.protocol.uri import MAX_URI_LENGTH, UriTemplate
from mcp_django.schema import DeclarationError
from mcp_django.server.primitives.decorators import NAME_PATTERN

SEPARATOR = "__"
MAX_NAME_CHARACTERS = 128
"""Maximum characters of a remote name (server/tools); own names are limited to 64."""
_FOREIGN_NAME = re.compile(rf"[A-Za-z0-9_.\-]{{1,{MAX_NAME_CHARACTERS}}}")
UI_SCHEME = "ui://"
"""Scheme of the pages of apps (MCP Apps)."""
_WITH_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:")


class InvalidPrefixedName(DeclarationError):
    """A name or URI is invalid with its prefix; the text has the reason."""


@dataclass(frozen=True, slots=True)
class NamePrefixes:
    """The prefix of names ("" for none) and of URIs (None for none).

    Raises DeclarationError for an invalid prefix. A name prefix has letters, digits, "-", "." and single "_" in
    between. A URI prefix has a letter, then letters, digits, "-" and ".".
    """

    prefix: str = ""
    uri_prefix: str | None = None

    def __post_init__(self) -> None:
        if self.prefix and not re.fullmatch(NAME_PREFIX_PATTERN, self.prefix):
            raise DeclarationError(
                f"the prefix {self.prefix!r} must have letters, digits, '-' and '.', with single '_' between them"
            )
        if self.uri_prefix is not None and not re.fullmatch(SCHEME_PREFIX_PATTERN, self.uri_prefix):
            raise DeclarationError(
                f"the URI prefix {self.uri_prefix!r} must begin with a letter and have letters, digits, '-' and '.'; "
                "it becomes the beginning of a scheme, as in 'weather+city://zurich'"
            )

    @property
    def tool_prefix(self) -> str:
        """The beginning of each name, with the separator; empty without a prefix."""
        return f"{self.prefix}{SEPARATOR}" if self.prefix else ""

    @property
    def keeps_uris(self) -> bool:
        """True if URIs stay unchanged."""
        return self.uri_prefix is None

    def name(self, name: str, *, foreign: bool = False) -> str:
        """Return the prefixed name of a tool or prompt. Raises InvalidPrefixedName.

        A `foreign` name, of a remote server, may have 128 characters. Other names may have 64, the limit that clients
        check.
        """
        prefixed = f"{self.prefix}{SEPARATOR}{name}" if self.prefix else name
        pattern, max_characters = (_FOREIGN_NAME, MAX_NAME_CHARACTERS) if foreign else (NAME_PATTERN, 64)
        if not pattern.fullmatch(prefixed):
            raise InvalidPrefixedName(
                f"the name {prefixed[:MAX_NAME_CHARACTERS]!r} must have 1 to {max_characters} letters, digits, or "
                "one of _ - ."
            )
        return prefixed

    def own_name(self, prefixed: str) -> str | None:
        """Return the name without the prefix; None if it has another prefix."""
        if not self.prefix:
            return prefixed
        prefix = f"{self.prefix}{SEPARATOR}"
        return prefixed.removeprefix(prefix) if prefixed.startswith(prefix) and prefixed != prefix else None

    def uri(self, uri: str) -> str:
        """Return the prefixed URI or template text.

        Raises InvalidPrefixedName for a URI without a scheme, and for one that becomes too long.
        """
        prefixed = uri if self.uri_prefix is None else self._prepend(self.uri_prefix, uri)
        if not _WITH_SCHEME.match(uri) or len(prefixed) > MAX_URI_LENGTH:
            raise InvalidPrefixedName(
                f"the URI {prefixed[:MAX_NAME_CHARACTERS]!r} must have a scheme, and {MAX_URI_LENGTH} characters "
                "at most"
            )
        return prefixed

    def own_uri(self, prefixed: str) -> str | None:
        """Return the URI without the prefix; None if it has another prefix."""
        if self.uri_prefix is None:
            return prefixed
        scheme = UI_SCHEME if prefixed.startswith(UI_SCHEME) else ""
        prefix = f"{scheme}{self.uri_prefix}+"
        return f"{scheme}{prefixed.removeprefix(prefix)}" if prefixed.startswith(prefix) else None

    def template(self, template: UriTemplate) -> UriTemplate:
        """Return the prefixed template. Raises InvalidPrefixedName."""
        prefixed = self.uri(template.text)
        if self.uri_prefix is not None and template.text.startswith(UI_SCHEME):
            return UriTemplate(prefixed)
        return template if self.uri_prefix is None else template.prepend(f"{self.uri_prefix}+")

    @staticmethod
    def _prepend(prefix: str, uri: str) -> str:
        scheme = UI_SCHEME if uri.startswith(UI_SCHEME) else ""
        return f"{scheme}{prefix}+{uri.removeprefix(scheme)}"
