"""Callers of tasks: the owner of a row, and the facts of a call that an attempt needs.

An attempt gets the caller's identity and scopes, the acting user, the language, the time zone, the values of the URL
and the trace. It gets nothing else of the request. Users are loaded again, the credential is looked at again without
its token, and permissions are decided again.
"""

import hashlib
from dataclasses import dataclass, replace
from typing import Any, Final

from django.contrib.auth import get_user_model
from django.utils import timezone, translation

from mcp_django.auth.authentication.verifiers import AuthError
from mcp_django.auth.authorization.user_rights import has_no_more_rights
from mcp_django.auth.principal import ALL_SCOPES, LOCAL, DjangoPrincipal, local_principal
from mcp_django.contrib.tasks.models import OWNER_CHARACTERS, Task
from mcp_django.contrib.tasks.rows import store
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import TransportRefusal
from mcp_django.protocol.meta import PROGRESS_TOKEN, TRACEPARENT, TRACESTATE
from mcp_django.protocol.revisions import Era
from mcp_django.protocol.trace_context import find_carrier
from mcp_django.runtime.calls.tracing import get_span_parent
from mcp_django.server.calls.call import Call
from mcp_django.server.context.conversation import explain_missing_stream
from mcp_django.server.ports import Overloaded, Principal
from mcp_django.transports.services import get_authenticator

REPEATED_KEY: Final = "repeated"
"""Member of the context of a task that an operator has run again. The operator is its acting user."""
IDENTITY_FIELDS: Final = ("issuer", "subject", "client_id", "kind", "audience", "grant_id", "expires_at")
"""Fields of a principal that identify it and its credential, and are stored as they are."""
GONE_MESSAGE: Final = "The user of this task is not active any more"
REVOKED_MESSAGE: Final = "The access with which this task was created has ended; call the tool again with a valid one"
RIGHTS_MESSAGE: Final = "The user who ran this task again has fewer rights than its caller now"


class CallerGone(Exception):
    """The caller of a task may not call any more.

    A user is gone or inactive, the credential was revoked, or an operator lacks rights of the caller.
    """


@dataclass(frozen=True, slots=True)
class TaskOwner:
    """The caller whose tasks a request may see."""

    label: str
    digest: str
    """Digest of the server, the caller with its client, the URL and, for anonymous sessions, the session."""
    is_distinct: bool
    """False for anonymous callers without a session, who cannot be told apart."""


def get_owner(call: Call) -> TaskOwner:
    """Return the owner of the tasks that a call creates and may see."""
    principal, session = call.principal, call.session
    is_anonymous = principal.owner is None and getattr(principal, "kind", None) != LOCAL
    pk = session.pk if is_anonymous and session is not None and call.revision.era is Era.HANDSHAKE else None
    kwargs = {name: str(value) for name, value in call.url_kwargs.items()}
    identity = jsonrpc.dumps_sorted([call.root.server.alias, principal.key, pk, kwargs])
    return TaskOwner(
        principal.key[:OWNER_CHARACTERS], hashlib.sha256(identity).hexdigest(), not is_anonymous or pk is not None
    )


def describe_call(call: Call) -> dict[str, Any]:
    """Return the facts of a call that its task stores, as JSON."""
    carrier = find_carrier(call.meta, call.connection.message_headers)
    return {
        "principal": _describe_principal(call.principal),
        "actor": _describe_actor(getattr(call.principal, "actor", None)),
        "capabilities": call.capabilities,
        "client_info": call.client_info,
        "progress_token": call.meta.get(PROGRESS_TOKEN),
        "url_kwargs": {name: _to_json(value) for name, value in call.url_kwargs.items()},
        "language": translation.get_language(),
        "time_zone": timezone.get_current_timezone_name(),
        "span": get_span_parent(),
        "missing_stream": explain_missing_stream(call.root),
        "trace": {key: carrier[key] for key in (TRACEPARENT, TRACESTATE) if isinstance(carrier.get(key), str)},
    }


def _to_json(value: Any) -> Any:
    return value if isinstance(value, str | int | float) else str(value)


def _describe_principal(principal: Principal) -> dict[str, Any]:
    if not isinstance(principal, DjangoPrincipal):
        raise TypeError(f"Tasks need the principals of mcp_django, not {type(principal).__name__}")
    return {
        **{name: getattr(principal, name) for name in IDENTITY_FIELDS},
        "token_id": None if principal.token_id is None else _to_json(principal.token_id),
        "scopes": None if principal.scopes is ALL_SCOPES else sorted(principal.scopes),
    }


def _describe_actor(actor: Any) -> Any:
    pk = _get_pk(actor)
    return None if pk is None else _to_json(pk)


def get_user_pk(principal: Principal) -> Any:
    """Return the primary key of the user of this project that a caller acts as, or None."""
    return _get_pk(principal.user)


def _get_pk(user: Any) -> Any:
    return user.pk if isinstance(user, get_user_model()) else None


async def load_principal(task: Task) -> DjangoPrincipal:
    """Return the caller of a task, with its users and the scopes of its credential as they are now.

    Raises:
        CallerGone: a user was deleted or deactivated, the credential was revoked, or an operator may not act for it.
        Overloaded: the credential cannot be looked at now.
    """
    context = task.get_context()
    if task.user_id is None and context.get("actor") is None:
        principal = _build_principal(task, context)  # nothing to read, and no thread to wait for
    else:
        principal = await store.run_on_rows(_build_principal, task, context)
    try:
        return await get_authenticator(task.server).reload(principal, store.run_on_rows)
    except AuthError as problem:
        if problem.kind == "unavailable":
            raise Overloaded(problem.description, retry_after=problem.retry_after) from None
        raise CallerGone(REVOKED_MESSAGE) from None
    except TransportRefusal as refusal:
        if refusal.status >= 500:
            raise Overloaded(REVOKED_MESSAGE) from None
        raise CallerGone(REVOKED_MESSAGE) from None


def _build_principal(task: Task, context: dict[str, Any]) -> DjangoPrincipal:
    stored, user, actor = context["principal"], _load_user(task.user_id), _load_user(context.get("actor"))
    if context.get(REPEATED_KEY) and not may_act_for(actor, user, stored["kind"]):
        raise CallerGone(RIGHTS_MESSAGE)
    if stored["kind"] == LOCAL:
        return replace(local_principal(user), actor=actor)
    scopes = ALL_SCOPES if stored["scopes"] is None else frozenset(stored["scopes"])
    return DjangoPrincipal(**{**stored, "scopes": scopes}, user=user, actor=actor)


def may_act_for(operator: Any, user: Any, kind: str) -> bool:
    """Return True if a caller of this kind has no more rights than an operator. Queries the database.

    A caller without a user, and a local one, which may do everything, can be compared with superusers only.
    """
    if operator is None:
        return False
    if user is None or kind == LOCAL:
        return bool(operator.is_active and getattr(operator, "is_superuser", False))
    return user.pk == operator.pk or has_no_more_rights(user, operator)


def repeat_context(context: dict[str, Any], operator: Any) -> dict[str, Any]:
    """Return the context of a task that an operator runs again, who becomes its acting user.

    The client's answers and steps are left out, and so is its progress token, which ended with its request.
    """
    return {**context, "rounds": {}, "progress_token": None, "actor": _describe_actor(operator), REPEATED_KEY: True}


def _load_user(pk: Any) -> Any:
    if pk is None:
        return None
    user = get_user_model()._default_manager.filter(pk=pk).first()
    if user is None or not getattr(user, "is_active", True):
        raise CallerGone(GONE_MESSAGE)
    return user
