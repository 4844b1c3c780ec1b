"""Idempotency keys: a repeated write runs once and returns the stored result.

A key is a row with a unique name that also stores the result. If it is in the same database as the written rows, it is
part of their transaction. A failed write then leaves no key and can be retried.

In another database the key is claimed before the write and completed afterwards. If the process dies in between, the
outcome stays unknown.
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
from mcp_django.server.context.context import Context
from mcp_django.server.context.idempotency import OutcomeUnknown

KEY_LIFETIME = timedelta(days=1)
"""Lifetime of a key."""
MAX_KEY_CHARACTERS = 200
"""Maximum length of a key in characters."""
_UNKNOWN_OUTCOME_MESSAGE = (
    "A write under this idempotency_key is running or has failed, and it is not repeated. Check whether the write took "
    "effect"
)


class IdempotentWrite:
    """Write under an idempotency key of the client.

    The key is valid for one caller, server, set of captured URL arguments, and `operation` (a model and a tool).
    """

    def __init__(self, ctx: Context, key: str, operation: str, arguments: dict[str, Any]) -> None:
        key_scope = [ctx.server.alias, ctx.principal.key, {name: str(value) for name, value in ctx.url_kwargs.items()}]
        self._key_hash = _digest(["idempotency key", *key_scope, operation, key])
        self._arguments_hash = _digest(to_json(arguments))
        self._owner = ctx.principal.key
        self.using: str = OnceResult.objects.all().db

    def find_result(self) -> Any:
        """Return the stored result, or None for a new key.

        Raises:
            ToolError: the key was used with other arguments.
            OutcomeUnknown: an earlier write has no stored result.
        """
        row = OnceResult.objects.filter(key_hash=self._key_hash, expires__gt=timezone.now()).first()
        if row is None:
            return None
        stored = row.result or {}
        if stored.get("payload") != self._arguments_hash:
            raise ToolError("This idempotency_key was used with other arguments before; use a new key for a new write")
        if "value" not in stored:
            raise OutcomeUnknown(_UNKNOWN_OUTCOME_MESSAGE)
        return jsonrpc.loads(stored["value"])

    def get_result(self) -> Any:
        """Return the stored result of a key that is taken.

        Raises:
            ToolError: as for `find_result`.
            OutcomeUnknown: the write has no stored result.
        """
        answer = self.find_result()
        if answer is None:
            raise OutcomeUnknown(_UNKNOWN_OUTCOME_MESSAGE)
        return answer

    def claim(self) -> bool:
        """Claim the key; return False if it is taken."""
        now = timezone.now()
        row = OnceResult(
            key_hash=self._key_hash,
            owner=Session.encode_owner(self._owner),
            expires=now + KEY_LIFETIME,
            result={"payload": self._arguments_hash},
        )

        try:
            with transaction.atomic(using=self.using):
                OnceResult.objects.filter(key_hash=self._key_hash, expires__lte=now).delete()
                row.save(force_insert=True, using=self.using)
        except IntegrityError:
            return False
        return True

    def store_result(self, value: Any) -> None:
        """Store the result."""
        # Stored as text, because JSON in PostgreSQL does not support NUL.
        result = {"payload": self._arguments_hash, "value": jsonrpc.dumps(value).decode()}
        OnceResult.objects.filter(key_hash=self._key_hash).update(done_at=timezone.now(), result=result)

    def release(self) -> None:
        """Release the key after a write that changed nothing."""
        OnceResult.objects.filter(key_hash=self._key_hash, done_at=None).delete()


def run_in_transaction(idempotent_write: IdempotentWrite, work: Callable[[], Any]) -> Any:
    """Claim the key, run the write and store its result in one transaction.

    The transaction is already open, on the database of the key.
    """
    if not idempotent_write.claim():
        return idempotent_write.get_result()
    value = to_json(work())
    idempotent_write.store_result(value)
    return value


def _digest(content: Any) -> str:
    return hashlib.sha256(jsonrpc.dumps_sorted(content)).hexdigest()
