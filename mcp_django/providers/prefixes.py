"""What primitives of another source are called here: the one home of prefixes.

Tools and prompts become `<prefix>__<name>`. URIs stay as they are, because results refer to them, unless a URI prefix
is asked for: then `city://zurich` becomes `<uri_prefix>+city://zurich`, which keeps the path, works for templates as
it does for URIs, and leads back to the URI that it was made of.
"""

import re
from dataclasses import dataclass

from mcp_django.conf.readers import PREFIX, SCHEME
from mcp_django.protocol.uri import MAX_LENGTH, UriTemplate
from mcp_django.schema import DeclarationError
from mcp_django.server.primitives.decorators import NAME

SEPARATOR = "__"
LONGEST = 128
"""What server/tools allows of a name; names declared here keep to the 64 that clients check."""
_LENIENT = re.compile(rf"[A-Za-z0-9_.\-]{{1,{LONGEST}}}")
_WITH_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:")


class Unfit(DeclarationError):
    """A name or a URI that cannot be served under its prefix. The text says why, with the name cut short."""


@dataclass(frozen=True, slots=True)
class Naming:
    """The prefix of names, "" for none, and that of URIs, None for none.

    Raises DeclarationError for a prefix that is none: letters, digits, "-" and ".", single "_" between them; for URIs
    a letter, then letters, digits, "-" and ".".
    """

    prefix: str = ""
    uri_prefix: str | None = None

    def __post_init__(self) -> None:
        if self.prefix and not re.fullmatch(PREFIX, self.prefix):
            raise DeclarationError(
                f"the prefix {self.prefix!r} must have letters, digits, '-' and '.', with single '_' between them"
            )
        if self.uri_prefix is not None and not re.fullmatch(SCHEME, self.uri_prefix):
            raise DeclarationError(
                f"the URI prefix {self.uri_prefix!r} must begin with a letter and have letters, digits, '-' and '.'; "
                "it becomes the beginning of a scheme, as in 'weather+city://zurich'"
            )

    @property
    def keeps_uris(self) -> bool:
        """Do URIs stay as they are?"""
        return self.uri_prefix is None

    def name(self, name: str, *, foreign: bool = False) -> str:
        """The name here of a tool or prompt. A `foreign` one, of a remote server, may have 128 characters; others 64,
        which is what clients check. Raises Unfit.
        """
        here = f"{self.prefix}{SEPARATOR}{name}" if self.prefix else name
        pattern, most = (_LENIENT, LONGEST) if foreign else (NAME, 64)
        if not pattern.fullmatch(here):
            raise Unfit(f"the name {here[:LONGEST]!r} must have 1 to {most} letters, digits, or one of _ - .")
        return here

    def own_name(self, here: str) -> str | None:
        """The name that it has at its source; None for one that has not this prefix."""
        if not self.prefix:
            return here
        beginning = f"{self.prefix}{SEPARATOR}"
        return here.removeprefix(beginning) if here.startswith(beginning) and here != beginning else None

    def uri(self, uri: str) -> str:
        """The URI here, or the text of a template. Raises Unfit for one without a scheme, or that becomes too long."""
        here = uri if self.uri_prefix is None else f"{self.uri_prefix}+{uri}"
        if not _WITH_SCHEME.match(uri) or len(here) > MAX_LENGTH:
            raise Unfit(f"the URI {here[:LONGEST]!r} must have a scheme, and {MAX_LENGTH} characters at most")
        return here

    def own_uri(self, here: str) -> str | None:
        """The URI that it has at its source; None for one that has not this prefix."""
        if self.uri_prefix is None:
            return here
        beginning = f"{self.uri_prefix}+"
        return here.removeprefix(beginning) if here.startswith(beginning) else None

    def template(self, template: UriTemplate) -> UriTemplate:
        """The template here. Raises Unfit."""
        here = self.uri(template.text)
        return template if here == template.text else UriTemplate(here)
