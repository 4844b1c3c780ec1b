"""Client metadata (RFC 7591, section 2), parsed from untrusted JSON.

Registration requests and metadata documents have the same members and share this parser. The server offers only the
authorization code with refresh tokens. Additional requests of a client are reduced to these, as section 3.2.1 allows,
because real clients list all their capabilities. Metadata without the code grant is rejected. Unknown members are
ignored, and so is `scope`: the scopes of a client are decided at each consent.

This module does not depend on Django, requests or rows.
"""

import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from mcp_django.auth.external.strict_json import MalformedInput, parse_object
from mcp_django.contrib.oauth.redirects import MAX_REDIRECT_URIS, find_redirect_problem, is_native
from mcp_django.types import clean_line

MAX_METADATA_BYTES = 16 * 1024
"""Maximum number of bytes of a request or a document."""
MAX_METADATA_DEPTH = 8
MAX_NAME_CHARS = 100
"""Maximum number of characters of a name, which is shown to users."""
DEFAULT_CLIENT_NAME = "Unnamed client"
CODE, REFRESH = "authorization_code", "refresh_token"
SECRET_METHODS = ("client_secret_basic", "client_secret_post")
_LINKS = ("client_uri", "logo_uri", "policy_uri", "tos_uri")
_MAX_LINK_CHARS = 500
MetadataErrorCode = Literal["invalid_client_metadata", "invalid_redirect_uri"]


class ClientMetadataRefused(Exception):
    """Error: the metadata is rejected (RFC 7591, section 3.2.2).

    The text may be sent to the client: it contains nothing of the request.
    """

    def __init__(self, description: str, code: MetadataErrorCode = "invalid_client_metadata") -> None:
        super().__init__(description)
        self.description = description
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientMetadata:
    """Accepted metadata of a client."""

    name: str
    """Printable name without invisible or direction-changing characters, not escaped."""
    redirect_uris: tuple[str, ...]
    auth_method: str = "none"
    """`token_endpoint_auth_method`: "none" for a public client, or one of SECRET_METHODS."""
    application_type: str = ""
    """"web", "native", or "" if the client did not send it."""
    requested_grants: tuple[str, ...] = (CODE,)
    """Requested grants, known or unknown."""
    client_uri: str = ""
    logo_uri: str = ""
    policy_uri: str = ""
    tos_uri: str = ""

    @property
    def is_public(self) -> bool:
        """Return True if the client has no secret."""
        return self.auth_method == "none"

    def build_response_members(self) -> dict[str, Any]:
        """Return the metadata for a registration response (RFC 7591, section 3.2.1).

        No member is null: Claude Code rejects a response with a null member.
        """
        members: dict[str, Any] = {
            "client_name": self.name,
            "redirect_uris": list(self.redirect_uris),
            "grant_types": [CODE, REFRESH],
            "response_types": ["code"],
            "token_endpoint_auth_method": self.auth_method,
        }
        if self.application_type:
            members["application_type"] = self.application_type
        return members | {name: link for name in _LINKS if (link := getattr(self, name))}


def read_json(body: bytes) -> dict[str, Any]:
    """Parse a JSON object strictly.

    Duplicate members (RFC 7493, section 2.3), NaN, NUL, lone surrogates and deep nesting are rejected.

    Raises:
        ClientMetadataRefused: invalid or oversized JSON.
    """
    if len(body) > MAX_METADATA_BYTES:
        raise ClientMetadataRefused(f"the metadata has more than {MAX_METADATA_BYTES} bytes")
    try:
        return parse_object(body, max_depth=MAX_METADATA_DEPTH)
    except MalformedInput as problem:
        raise ClientMetadataRefused(f"the metadata is invalid: {problem}") from None


def read_registration(document: Mapping[str, Any], *, schemes: Collection[str]) -> ClientMetadata:
    """Parse the metadata of a registration request.

    `schemes` are the allowed private-use schemes of redirect URIs.

    Raises:
        ClientMetadataRefused: the metadata is rejected.
    """
    return _read_metadata(document, default_method=SECRET_METHODS[0], schemes=schemes)


def read_document(document: Mapping[str, Any], *, url: str, schemes: Collection[str]) -> ClientMetadata:
    """Parse the Client ID Metadata Document found at `url`.

    The document names its own URL and has no secret (draft-ietf-oauth-client-id-metadata-document, section 4). MCP also
    requires a name and redirect URIs (basic/authorization, Client ID Metadata Documents).

    Raises:
        ClientMetadataRefused: the metadata is rejected.
    """
    if document.get("client_id") != url:
        raise ClientMetadataRefused("the client_id in the document is not the URL of the document")
    if "client_secret" in document or "client_secret_expires_at" in document:
        raise ClientMetadataRefused("a metadata document must not contain a client_secret")
    metadata = _read_metadata(document, default_method="none", schemes=schemes)
    if not metadata.is_public:
        raise ClientMetadataRefused(
            "token_endpoint_auth_method of a metadata document must be none, because it cannot hold a secret"
        )
    if not _read_name(document):
        raise ClientMetadataRefused("client_name is missing")
    return metadata


def _read_metadata(document: Mapping[str, Any], *, default_method: str, schemes: Collection[str]) -> ClientMetadata:
    kind = _read_text(document, "application_type")
    if kind not in ("", "web", "native"):
        raise ClientMetadataRefused("application_type must be web or native")

    uris = _read_redirect_uris(document, schemes=schemes)
    if kind == "web" and any(map(is_native, uris)):
        # OpenID Connect Dynamic Client Registration, section 2.
        raise ClientMetadataRefused(
            "a web application must not have loopback or private-use redirect URIs", "invalid_redirect_uri"
        )

    grants = _read_texts(document, "grant_types", (CODE,))
    if CODE not in grants:
        raise ClientMetadataRefused("grant_types must contain authorization_code, the only supported grant")
    if "code" not in _read_texts(document, "response_types", ("code",)):
        raise ClientMetadataRefused("response_types must contain code, the only supported type")

    return ClientMetadata(
        name=_read_name(document) or DEFAULT_CLIENT_NAME,
        redirect_uris=uris,
        auth_method=_read_auth_method(document, default_method),
        application_type=kind,
        requested_grants=tuple(grant[:100] for grant in grants[:MAX_REDIRECT_URIS]),
        **{name: _read_link(document, name) for name in _LINKS},
    )


def _read_redirect_uris(document: Mapping[str, Any], *, schemes: Collection[str]) -> tuple[str, ...]:
    uris = document.get("redirect_uris")
    if not isinstance(uris, list) or not 1 <= len(uris) <= MAX_REDIRECT_URIS:
        raise ClientMetadataRefused(
            f"redirect_uris must be an array of 1 to {MAX_REDIRECT_URIS} URIs", "invalid_redirect_uri"
        )
    for uri in uris:
        if problem := find_redirect_problem(uri, schemes=schemes):
            raise ClientMetadataRefused(problem, "invalid_redirect_uri")
    return tuple(dict.fromkeys(uris))


def _read_auth_method(document: Mapping[str, Any], default: str) -> str:
    method = _read_text(document, "token_endpoint_auth_method") or default
    if method == "none" or method in SECRET_METHODS:
        return method
    # ChatGPT prefers private_key_jwt and supports other methods too.
    supported = _read_texts(document, "token_endpoint_auth_methods_supported", ())
    if "none" in supported:
        return "none"
    raise ClientMetadataRefused(f"token_endpoint_auth_method must be none, {' or '.join(SECRET_METHODS)}")


def _read_name(document: Mapping[str, Any]) -> str:
    """Return the name for display: one line, one direction, visible characters."""
    name = clean_line(unicodedata.normalize("NFC", _read_text(document, "client_name")))
    if len(name) > MAX_NAME_CHARS:
        raise ClientMetadataRefused(f"client_name has more than {MAX_NAME_CHARS} characters")
    return name


def _read_link(document: Mapping[str, Any], name: str) -> str:
    """Return a link to a page about the client.

    An unsafe link is omitted as section 2 allows, and "" is returned.
    """
    link = _read_text(document, name)
    plain = link.isascii() and link.isprintable() and not set(link) & set(" \"'<>\\`{}|^")
    try:
        parts = urlsplit(link)
    except ValueError:
        return ""
    safe = parts.scheme == "https" and parts.hostname and "@" not in parts.netloc
    return link if plain and safe and len(link) <= _MAX_LINK_CHARS else ""


def _read_text(document: Mapping[str, Any], name: str) -> str:
    value = document.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ClientMetadataRefused(f"{name} is not a string")
    return value


def _read_texts(document: Mapping[str, Any], name: str, default: Sequence[str]) -> Sequence[str]:
    values = document.get(name)
    if values is None:
        return default
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ClientMetadataRefused(f"{name} is not an array of strings")
    return values
