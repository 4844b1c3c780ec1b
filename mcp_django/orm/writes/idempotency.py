"""Idempotency keys: the same write, asked for twice, is done once and answered alike.

The key is a row with a unique name, and the answer is in it. Where it lives in the database that is written to it is
part of the same transaction, so that both are there or neither: what failed is forgotten, and may be tried again under
its key. Elsewhere it is claimed before and settled afterwards; a process that dies in between leaves an outcome that
nobody knows.
"""

import hashlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from mcp_django.models import OnceResult
from mcp_django.models.session import Session
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import ToolError
from mcp_django.schema import to_json
from mcp_django.server.client_requests.idempotency import OutcomeUnknown
from mcp_django.server.context.context import Context

KEPT = timedelta(days=1)
"""How long a key is known."""
LONGEST = 200
"""Characters of a key."""
_UNKNOWN = (
    "A write under this idempotency_key was begun before and has not ended, or did not end well; it is not done again. "
    "Find out whether it took effect"
)


class Repeat:
    """One write under the key that its client gave it.

    The key counts for the caller, the server, what the URL captured, and `what`: a model and a verb.
    """

    def __init__(self, ctx: Context, key: str, what: str, arguments: dict[str, Any]) -> None:
        where = [ctx.server.alias, ctx.principal.key, {name: str(value) for name, value in ctx.kwargs.items()}]
        self._name = _digest(["idempotency key", *where, what, key])
        self._payload = _digest(to_json(arguments))
        self._owner = ctx.principal.key
        self.using: str = OnceResult.objects.all().db

    def earlier(self) -> Any:
        """The answer of the first time; None when there was none.

        Raises ToolError when the key was used for something else, and when nobody can say what came of it.
        """
        row = OnceResult.objects.filter(key_hash=self._name, expires__gt=timezone.now()).first()
        if row is None:
            return None
        known = row.result or {}
        if known.get("payload") != self._payload:
            raise ToolError("This idempotency_key was used before with other arguments; use a new key for a new write")
        if "value" not in known:
            raise OutcomeUnknown(_UNKNOWN)
        return jsonrpc.loads(known["value"])

    def first(self) -> Any:
        """As `earlier`, when the key is known to be taken."""
        answer = self.earlier()
        if answer is None:
            raise OutcomeUnknown(_UNKNOWN)
        return answer

    def claim(self) -> bool:
        """Take the key. False when it is taken."""
        now = timezone.now()
        row = OnceResult(
            key_hash=self._name,
            owner=Session.owner_name(self._owner),
            expires=now + KEPT,
            result={"payload": self._payload},
        )
        try:
            with transaction.atomic(using=self.using):
                OnceResult.objects.filter(key_hash=self._name, expires__lte=now).delete()
                row.save(force_insert=True, using=self.using)
        except IntegrityError:
            return False
        return True

    def settle(self, value: Any) -> None:
        """Keep the answer."""
        # As text, because PostgreSQL's JSON has no NUL.
        result = {"payload": self._payload, "value": jsonrpc.dumps(value).decode()}
        OnceResult.objects.filter(key_hash=self._name).update(done_at=timezone.now(), result=result)

    def release(self) -> None:
        """Nothing was written: the key is free again."""
        OnceResult.objects.filter(key_hash=self._name, done_at=None).delete()


def within(repeat: Repeat, work: Callable[[], Any]) -> Any:
    """Claim, work and settle inside the transaction that is open on the key's database."""
    if not repeat.claim():
        return repeat.first()
    value = to_json(work())
    repeat.settle(value)
    return value


def _digest(what: Any) -> str:
    return hashlib.sha256(jsonrpc.dumps_sorted(what)).hexdigest()
