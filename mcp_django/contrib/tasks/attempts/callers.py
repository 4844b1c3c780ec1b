"""Callers of tasks: the owner of a row, and the facts of a call that an attempt needs.

An attempt gets the caller's identity and scopes, the acting user, the language, the time zone, the values of the URL
and the trace. It gets nothing else of the request. Users are loaded again, and permissions are decided again.
"""

import hashlib
from dataclasses import dataclass
from typing import Any

from django.contrib.auth import get_user_model
from django.utils import timezone, translation

from mcp_django.auth.principal import LOCAL, DjangoPrincipal, local_principal
from mcp_django.contrib.tasks.models import OWNER_CHARACTERS, Task
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.meta import PROGRESS_TOKEN, TRACEPARENT, TRACESTATE
from mcp_django.protocol.revisions import Era
from mcp_django.protocol.trace_context import find_carrier
from mcp_django.runtime.calls.tracing import get_span_parent
from mcp_django.server.calls.call import Call
from mcp_django.server.ports import Principal


class CallerGone(Exception):
    """The user of a task, or the acting user, does not exist any more or is inactive."""


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
        "trace": {key: carrier[key] for key in (TRACEPARENT, TRACESTATE) if isinstance(carrier.get(key), str)},
    }


def _to_json(value: Any) -> Any:
    return value if isinstance(value, str | int | float) else str(value)


def _describe_principal(principal: Principal) -> dict[str, Any]:
    if not isinstance(principal, DjangoPrincipal):
        raise TypeError(f"Tasks need the principals of mcp_django, not {type(principal).__name__}")
    return {
        "issuer": principal.issuer,
        "subject": principal.subject,
        "client_id": principal.client_id,
        "kind": principal.kind,
        "scopes": sorted(principal.scopes),
        "audience": principal.audience,
    }


def _describe_actor(actor: Any) -> Any:
    pk = _get_pk(actor)
    return None if pk is None else _to_json(pk)


def get_user_pk(principal: Principal) -> Any:
    """Return the primary key of the user of this project that a caller acts as, or None."""
    return _get_pk(principal.user)


def _get_pk(user: Any) -> Any:
    return user.pk if isinstance(user, get_user_model()) else None


def has_users(task: Task) -> bool:
    """Return True if `load_principal` reads users from the database."""
    return task.user_id is not None or task.get_context().get("actor") is not None


def load_principal(task: Task) -> DjangoPrincipal:
    """Return the caller of a task, with its user and the acting user as stored now. Blocking.

    Raises CallerGone if one of them was deleted or deactivated.
    """
    context = task.get_context()
    stored, user, actor = context["principal"], _load_user(task.user_id), _load_user(context.get("actor"))
    if stored["kind"] == LOCAL:
        return local_principal(user)
    return DjangoPrincipal(**{**stored, "scopes": frozenset(stored["scopes"])}, user=user, actor=actor)


def _load_user(pk: Any) -> Any:
    if pk is None:
        return None
    user = get_user_model()._default_manager.filter(pk=pk).first()
    if user is None or not getattr(user, "is_active", True):
        raise CallerGone("The user of this task is not active any more")
    return user
