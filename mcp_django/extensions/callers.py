"""Callers of stored calls: the owner of rows, and the caller at a later time.

A stored caller has its identity, its scopes and its acting user, and nothing else of the request. Users are loaded
again, the credential is looked at again without its token, and permissions are decided again.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from django.contrib.auth import get_user_model

from mcp_django.auth.authentication.verifiers import AuthError
from mcp_django.auth.authorization.user_rights import has_no_more_rights
from mcp_django.auth.principal import ALL_SCOPES, LOCAL, PROJECT_ISSUER, DjangoPrincipal, Run, local_principal
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import TransportRefusal
from mcp_django.protocol.revisions import Era
from mcp_django.server.calls.call import Call
from mcp_django.server.ports import Overloaded, Principal
from mcp_django.transports.services import get_authenticator

__all__ = [
    "ALL_SCOPES",
    "LOCAL",
    "PROJECT_ISSUER",
    "CallOwner",
    "CallerGone",
    "DjangoPrincipal",
    "describe_caller",
    "get_owner",
    "get_pk",
    "get_user_pk",
    "has_no_more_rights",
    "load_caller",
    "to_json_value",
]

IDENTITY_FIELDS: Final = ("issuer", "subject", "client_id", "kind", "audience", "grant_id", "expires_at")
"""Fields of a principal that identify it and its credential, and are stored as they are."""
MAX_LABEL_CHARACTERS: Final = 255
GONE_MESSAGE: Final = "The user of this call is not active any more"
REVOKED_MESSAGE: Final = "The access of this call has ended; call the tool again with a valid one"


class CallerGone(Exception):
    """The caller may not call any more: a user is gone or inactive, or the credential was revoked."""


@dataclass(frozen=True, slots=True)
class CallOwner:
    """The caller whose rows a request may see."""

    label: str
    """Text for people, at most `MAX_LABEL_CHARACTERS` long."""
    digest: str
    """Digest of the server, the caller with its client, the URL and, for anonymous sessions, the session."""
    is_distinct: bool
    """False for anonymous callers without a session, which the server cannot distinguish."""


def get_owner(call: Call) -> CallOwner:
    """Return the owner of the rows that a call creates and may see."""
    principal, session = call.principal, call.session
    is_anonymous = principal.owner is None and getattr(principal, "kind", None) != LOCAL
    pk = session.pk if is_anonymous and session is not None and call.revision.era is Era.HANDSHAKE else None
    kwargs = {name: str(value) for name, value in call.url_kwargs.items()}
    identity = jsonrpc.dumps_sorted([call.root.server.alias, principal.key, pk, kwargs])
    return CallOwner(
        principal.key[:MAX_LABEL_CHARACTERS], hashlib.sha256(identity).hexdigest(), not is_anonymous or pk is not None
    )


def get_user_pk(principal: Principal) -> Any:
    """Return the primary key of the user of this project that a caller acts as, or None."""
    return get_pk(principal.user)


def get_pk(user: Any) -> Any:
    """Return the primary key of a user of this project; None for any other object."""
    return user.pk if isinstance(user, get_user_model()) else None


def describe_caller(principal: Principal) -> dict[str, Any]:
    """Return a caller as JSON, for `load_caller`. It has no secret.

    Raises TypeError for a principal of another class than this package's.
    """
    if not isinstance(principal, DjangoPrincipal):
        raise TypeError(f"A stored call needs the principals of mcp_django, not {type(principal).__name__}")
    user_pk, actor_pk = get_user_pk(principal), get_pk(getattr(principal, "actor", None))
    return {
        **{name: getattr(principal, name) for name in IDENTITY_FIELDS},
        "token_id": None if principal.token_id is None else to_json_value(principal.token_id),
        "scopes": None if principal.scopes is ALL_SCOPES else sorted(principal.scopes),
        "user": None if user_pk is None else to_json_value(user_pk),
        "actor": None if actor_pk is None else to_json_value(actor_pk),
    }


def to_json_value(value: Any) -> Any:
    """Return a key, or a value of a URL, as JSON."""
    return value if isinstance(value, str | int | float) else str(value)


async def load_caller(server: str, description: Mapping[str, Any], run: Run) -> DjangoPrincipal:
    """Return a stored caller with its users and the scopes of its credential as they are now.

    `server` is an alias, and `run` runs the queries.

    Raises:
        CallerGone: a user was deleted or deactivated, or the credential was revoked.
        Overloaded: the credential cannot be looked at now.
    """
    if description["user"] is None and description["actor"] is None:
        principal = _build_principal(description)  # nothing to read, and no thread to wait for
    else:
        principal = await run(_build_principal, description)
    try:
        return await get_authenticator(server).reload(principal, run)
    except AuthError as problem:
        if problem.kind == "unavailable":
            raise Overloaded(problem.description, retry_after=problem.retry_after) from None
        raise CallerGone(REVOKED_MESSAGE) from None
    except TransportRefusal as refusal:
        if refusal.status >= 500:
            raise Overloaded(REVOKED_MESSAGE) from None
        raise CallerGone(REVOKED_MESSAGE) from None


def _build_principal(description: Mapping[str, Any]) -> DjangoPrincipal:
    user, actor = _load_user(description["user"]), _load_user(description["actor"])
    if description["kind"] == LOCAL:
        return replace(local_principal(user), actor=actor)
    scopes = ALL_SCOPES if description["scopes"] is None else frozenset(description["scopes"])
    identity = {name: description[name] for name in IDENTITY_FIELDS}
    return DjangoPrincipal(**identity, token_id=description["token_id"], scopes=scopes, user=user, actor=actor)


def _load_user(pk: Any) -> Any:
    if pk is None:
        return None
    user = get_user_model()._default_manager.filter(pk=pk).first()
    if user is None or not getattr(user, "is_active", True):
        raise CallerGone(GONE_MESSAGE)
    return user
