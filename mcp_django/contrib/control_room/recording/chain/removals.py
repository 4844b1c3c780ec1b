"""Removal of a user from sealed rows. Each row gets a mark, which only the owner of the key can write."""

from collections import defaultdict
from collections.abc import Callable

from django.db import transaction
from django.db.models import Q

from mcp_django.contrib.control_room.models import CallLogEntry
from mcp_django.contrib.control_room.recording.chain.seals import ACTOR_FIELD, CLEARED_FIELDS, UNSEALED, Seal

BATCH_ROWS = 200
_CHANGED_FIELDS = ("principal", "user_key", ACTOR_FIELD, "seal", *CLEARED_FIELDS)


def remove_from_sealed_rows(user_key: str, build_name: Callable[[], str], alias: str) -> int:
    """Replace a user in the sealed rows by random names; return the number of changed rows.

    Each principal of the user gets one name. The row of a call that was altered before loses the user as well, but gets
    no mark, so it stays a finding.
    """
    rows = CallLogEntry.objects.using(alias).exclude(UNSEALED).filter(Q(user_key=user_key) | Q(actor_key=user_key))
    names = defaultdict[str, str](build_name)
    actor_name = build_name()
    changed = 0
    while True:
        with transaction.atomic(using=alias):
            batch = list(rows.select_for_update().order_by("pk")[:BATCH_ROWS])
            for row in batch:
                _remove(row, user_key, names, actor_name)
            CallLogEntry.objects.using(alias).bulk_update(batch, _CHANGED_FIELDS)
        changed += len(batch)
        if len(batch) < BATCH_ROWS:
            return changed


def _remove(row: CallLogEntry, user_key: str, names: dict[str, str], actor_name: str) -> None:
    seal = Seal.parse(row.seal)
    is_genuine = seal is not None and seal.is_genuine(row)
    if row.user_key == user_key:
        row.principal, row.user_key = names[row.principal], ""
        for name in CLEARED_FIELDS:
            setattr(row, name, "")
    if row.actor_key == user_key:
        row.actor_key = actor_name
    if seal is not None and is_genuine:
        row.seal = str(seal.mark_removal(row))
