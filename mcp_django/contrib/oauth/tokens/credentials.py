"""Which client asks, and is it that one (RFC 6749, section 2.3)?

A confidential client shows its secret, by HTTP Basic or in the body and not both; a public one says its name. What a
client asks for has no part in it.
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote_plus

from django.contrib.auth.hashers import check_password, identify_hasher
from django.db.models import Q
from django.utils.crypto import constant_time_compare

from mcp_django.contrib.oauth.tokens.token_format import digest
from mcp_django.contrib.oauth.toolkit_compat import applications, at_source

SEALED = "sha256$"
"""How a secret begins in the table that this server made up."""
LONGEST_ID = 255
LONGEST_SECRET = 1024


class Shown(NamedTuple):
    """What a request shows of its client. Not to be printed."""

    client_id: str
    secret: str | None
    basic: bool = False

    def __repr__(self) -> str:
        return f"<Shown {self.client_id!r}>"


class Malformed(Exception):
    """Credentials that mean nothing, or two of them."""


def shown(authorization: str | None, form: Mapping[str, Any]) -> Shown | None:
    """What the header and the form of a request show; None for nothing. Raises Malformed."""
    named, secret = form.get("client_id") or None, form.get("client_secret") or None
    if not authorization:
        return None if named is None else Shown(_checked(named), secret)
    client_id, password = _basic(authorization)
    if secret is not None or named not in (None, client_id):
        raise Malformed("Authenticate the client in one way")
    return Shown(_checked(client_id), password, basic=True)


def find(client_id: str) -> Any:
    """The application of that id that may be used, with its profile; None when there is none, or it is blocked."""
    if not is_client_id(client_id):
        return None
    rows = at_source(applications()).select_related("mcp_profile", "mcp_profile__service_user")
    return rows.filter(Q(mcp_profile=None) | Q(mcp_profile__blocked=False), client_id=client_id).first()


def authenticated(found: Shown | None) -> Any:
    """The application that these credentials prove, or that needs to prove nothing; None for anybody else."""
    application = None if found is None else find(found.client_id)
    if application is None or found is None:
        return None
    if found.secret is None:
        return None if is_confidential(application) else application
    return application if has_secret(application, found.secret) else None


def is_confidential(application: Any) -> bool:
    """Does the client have a secret to show?"""
    return bool(application.client_type == applications().CLIENT_CONFIDENTIAL)


def seal(secret: str) -> str:
    """What the table holds of a secret that this server made up. Nobody guesses 128 random characters, so that a slow
    hash, as passwords need, would only make each refresh take half a second of a processor, and each wrong guess too.
    """
    return SEALED + digest(secret)


def has_secret(application: Any, secret: str) -> bool:
    """Is this the secret of the client?"""
    stored = application.client_secret
    if not stored or len(secret) > LONGEST_SECRET:
        return False
    if stored.startswith(SEALED):
        return constant_time_compare(seal(secret), stored)
    try:
        identify_hasher(stored)
    except ValueError:
        # Kept as it is, where an operator wants that; else a hash of a kind that is not known any more.
        return not application.hash_client_secret and constant_time_compare(secret, stored)
    return check_password(secret, stored)


def is_client_id(text: Any) -> bool:
    """Can this be a client's id? Visible ASCII (RFC 6749, appendix A.1) of a length that the table holds."""
    return isinstance(text, str) and 0 < len(text) <= LONGEST_ID and text.isascii() and text.isprintable()


def _checked(client_id: str) -> str:
    if not is_client_id(client_id):
        raise Malformed("The client's id is malformed")
    return client_id


def _basic(authorization: str) -> tuple[str, str]:
    scheme, _, encoded = authorization.strip().partition(" ")
    if scheme.lower() != "basic":
        raise Malformed("Clients authenticate by HTTP Basic")
    try:
        decoded = base64.b64decode(encoded.strip().encode("ascii"), validate=True).decode("utf-8")
        client_id, colon, secret = decoded.partition(":")
        if not colon:
            raise ValueError("no colon")
        return unquote_plus(client_id, errors="strict"), unquote_plus(secret, errors="strict")
    except (UnicodeError, binascii.Error, ValueError):
        raise Malformed("The client's credentials are malformed") from None
