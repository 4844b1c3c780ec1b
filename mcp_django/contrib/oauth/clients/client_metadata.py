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

from mcp_django.auth.external.strict_json import Malformed, read_object
from mcp_django.contrib.oauth.redirects import MOST_URIS, is_native, problem_with

MOST_BYTES = 16 * 1024
"""Maximum number of bytes of a request or a document."""
MOST_NESTING = 8
MOST_NAME = 100
"""Maximum number of characters of a name, which is shown to users."""
UNNAMED = "Unnamed client"
CODE, REFRESH = "authorization_code", "refresh_token"
SECRET_METHODS = ("client_secret_basic", "client_secret_post")
_LINKS = ("client_uri", "logo_uri", "policy_uri", "tos_uri")
_MOST_LINK = 500
ErrorCode = Literal["invalid_client_metadata", "invalid_redirect_uri"]


class Refused(Exception):
    """Error: the metadata is rejected (RFC 7591, section 3.2.2).

    The text may be sent to the client: it contains nothing of the request.
    """

    def __init__(self, description: str, code: ErrorCode = "invalid_client_metadata") -> None:
        super().__init__(description)
        self.description, self.code = description, code


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

    def registered(self) -> dict[str, Any]:
        """Return the metadata for a registration response (RFC 7591, section 3.2.1).

        No member is null: Claude Code rejects a response with a null member.
        """
        found: dict[str, Any] = {
            "client_name": self.name,
            "redirect_uris": list(self.redirect_uris),
            "grant_types": [CODE, REFRESH],
            "response_types": ["code"],
            "token_endpoint_auth_method": self.auth_method,
        }
        if self.application_type:
            found["application_type"] = self.application_type
        return found | {name: link for name in _LINKS if (link := getattr(self, name))}


def read_json(body: bytes) -> dict[str, Any]:
    """Parse a JSON object strictly.

    Duplicate members (RFC 7493, section 2.3), NaN, NUL, lone surrogates and deep nesting are rejected.

    Raises:
        ClientMetadataRefused: invalid or oversized JSON.
    """
    if len(body) > MOST_BYTES:
        raise Refused(f"the metadata has more than {MOST_BYTES} bytes")
    try:
        return read_object(body, deepest=MOST_NESTING)
    except Malformed as problem:
        raise Refused(f"the metadata is invalid: {problem}") from None


def read_registration(document: Mapping[str, Any], *, schemes: Collection[str]) -> ClientMetadata:
    """Parse the metadata of a registration request.

    `schemes` are the allowed private-use schemes of redirect URIs.

    Raises:
        ClientMetadataRefused: the metadata is rejected.
    """
    return _read(document, default_method=SECRET_METHODS[0], schemes=schemes)


def read_document(document: Mapping[str, Any], *, url: str, schemes: Collection[str]) -> ClientMetadata:
    """Parse the Client ID Metadata Document found at `url`.

    The document names its own URL and has no secret (draft-ietf-oauth-client-id-metadata-document, section 4). MCP also
    requires a name and redirect URIs (basic/authorization, Client ID Metadata Documents).

    Raises:
        ClientMetadataRefused: the metadata is rejected.
    """
    if document.get("client_id") != url:
        raise Refused("the client_id in the document is not the URL of the document")
    if "client_secret" in document or "client_secret_expires_at" in document:
        raise Refused("a metadata document must not contain a client_secret")
    found = _read(document, default_method="none", schemes=schemes)
    if not found.is_public:
        raise Refused("token_endpoint_auth_method of a metadata document must be none, because it cannot hold a secret")
    if not _name(document):
        raise Refused("client_name is missing")
    return found


def _read(document: Mapping[str, Any], *, default_method: str, schemes: Collection[str]) -> ClientMetadata:
    kind = _text(document, "application_type")
    if kind not in ("", "web", "native"):
        raise Refused("application_type must be web or native")

    uris = _redirects(document, schemes=schemes)
    if kind == "web" and any(map(is_native, uris)):
        # OpenID Connect Dynamic Client Registration, section 2.
        raise Refused("a web application must not have loopback or private-use redirect URIs", "invalid_redirect_uri")

    grants = _texts(document, "grant_types", (CODE,))
    if CODE not in grants:
        raise Refused("grant_types must contain authorization_code, the only supported grant")
    if "code" not in _texts(document, "response_types", ("code",)):
        raise Refused("response_types must contain code, the only supported type")

    return ClientMetadata(
        name=_name(document) or UNNAMED,
        redirect_uris=uris,
        auth_method=_auth_method(document, default_method),
        application_type=kind,
        requested_grants=tuple(grant[:100] for grant in grants[:MOST_URIS]),
        **{name: _link(document, name) for name in _LINKS},
    )


def _redirects(document: Mapping[str, Any], *, schemes: Collection[str]) -> tuple[str, ...]:
    uris = document.get("redirect_uris")
    if not isinstance(uris, list) or not 1 <= len(uris) <= MOST_URIS:
        raise Refused(f"redirect_uris must be an array of 1 to {MOST_URIS} URIs", "invalid_redirect_uri")
    for uri in uris:
        if problem := problem_with(uri, schemes=schemes):
            raise Refused(problem, "invalid_redirect_uri")
    return tuple(dict.fromkeys(uris))


def _auth_method(document: Mapping[str, Any], default: str) -> str:
    method = _text(document, "token_endpoint_auth_method") or default
    if method == "none" or method in SECRET_METHODS:
        return method
    # ChatGPT prefers private_key_jwt and supports other methods too.
    others = _texts(document, "token_endpoint_auth_methods_supported", ())
    if "none" in others:
        return "none"
    raise Refused(f"token_endpoint_auth_method must be none, {' or '.join(SECRET_METHODS)}")


def _name(document: Mapping[str, Any]) -> str:
    """Return the name for display: one line, one direction, visible characters."""
    raw = unicodedata.normalize("NFC", _text(document, "client_name"))
    shown = "".join(" " if unicodedata.category(c)[0] in "CZ" else c for c in raw)
    found = " ".join(shown.split())
    if len(found) > MOST_NAME:
        raise Refused(f"client_name has more than {MOST_NAME} characters")
    return found


def _link(document: Mapping[str, Any], name: str) -> str:
    """Return a link to a page about the client.

    An unsafe link is omitted as section 2 allows, and "" is returned.
    """
    found = _text(document, name)
    plain = found.isascii() and found.isprintable() and not set(found) & set(" \"'<>\\`{}|^")
    try:
        parts = urlsplit(found)
    except ValueError:
        return ""
    safe = parts.scheme == "https" and parts.hostname and "@" not in parts.netloc
    return found if plain and safe and len(found) <= _MOST_LINK else ""


def _text(document: Mapping[str, Any], name: str) -> str:
    found = document.get(name)
    if found is None:
        return ""
    if not isinstance(found, str):
        raise Refused(f"{name} is not a string")
    return found


def _texts(document: Mapping[str, Any], name: str, default: Sequence[str]) -> Sequence[str]:
    found = document.get(name)
    if found is None:
        return default
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise Refused(f"{name} is not an array of strings")
    return found
