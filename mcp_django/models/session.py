"""Sessions of the handshake era as rows: owner, quota, expiry.

Several workers and the admin write here at the same time. So every statement stands alone or its transaction starts
with the write: SQLite refuses to turn a read lock into a write lock, and PostgreSQL would lose updates.
"""

import hashlib
import secrets
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Self

from django.db import IntegrityError, models, transaction
from django.db.models.signals import pre_delete
from django.dispatch import receiver
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from mcp_django.conf import user_model_name
from mcp_django.models.managers import PrimaryManager
from mcp_django.models.session_count import SessionCount
from mcp_django.signals import session_closed

KEY_PREFIX = 8
OWNER_LENGTH = 255
REASON_LENGTH = 32

ATTEMPTS = 64
"""Tries for a slot. Each time one of those that compete gets one, so this many may compete for an owner's slots."""


class EndReason(models.TextChoices):
    """Why a session is over."""

    CLIENT = "client", _("ended by the client")
    CLOSED = "closed", _("its connection was closed")
    IDLE = "idle", _("idle too long")
    LIFETIME = "lifetime", _("open too long")
    QUOTA = "quota", _("gave way to a newer session")
    ADMIN = "admin", _("ended in the admin")
    DELETED = "deleted", _("deleted")


class SlotContention(Exception):
    """Too many sessions of one owner, or of a server that is nearly full, are being opened at once."""


class TooManySessions(Exception):
    """The server has as many live sessions as it may."""


class Cap(NamedTuple):
    """The limit of a server: `most` sessions that were used in the last `idle` seconds."""

    most: int
    idle: float


class _Overtaken(Exception):
    """The session that was to give way ended meanwhile."""


class SessionQuerySet(models.QuerySet["Session"]):
    """Sets of sessions, and the three ways in and out: `admit`, `end`, `purge`."""

    def live(self, *, idle: float) -> Self:
        """Neither ended nor expired. `idle` is in seconds."""
        now = timezone.now()
        return self.filter(terminated_at=None, expires__gt=now, last_seen__gt=now - timedelta(seconds=idle))

    def reap(self, *, idle: float, spare: Collection[str] = (), most: int = 200) -> int:
        """End what has expired, about `most` of it; rows whose key hash is in `spare` are left. Returns how many."""
        now = timezone.now()
        open_ones = self.filter(terminated_at=None).exclude(key_hash__in=spare)
        worn_out = open_ones.filter(expires__lte=now).end(EndReason.LIFETIME, most=most)
        return worn_out + open_ones.filter(last_seen__lte=now - timedelta(seconds=idle)).end(EndReason.IDLE, most=most)

    def touch(self, *, every: float) -> int:
        """Note that these are in use, unless that was noted less than `every` seconds ago. One statement."""
        now = timezone.now()
        overdue = self.filter(terminated_at=None, last_seen__lt=now - timedelta(seconds=every))
        return overdue.update(last_seen=now)

    def ended(self, *, before: datetime | None = None) -> Self:
        """Marked as ended; `before` a moment, when it is given."""
        return self.filter(terminated_at__isnull=False) if before is None else self.filter(terminated_at__lt=before)

    def end(self, reason: str, *, most: int | None = None) -> int:
        """Mark these as ended, `most` of them when given, and send `session_closed` for each. Returns how many.

        A session that has left the set in the meantime, because it ended or was used, is left alone.
        """
        candidates = {row.pk: row for row in self.filter(terminated_at=None).order_by("pk")[:most]}
        if not candidates:
            return 0
        now, reason = timezone.now(), reason[:REASON_LENGTH]
        ours = self.filter(pk__in=candidates, terminated_at=None)
        if ours.update(terminated_at=now, end_reason=reason, slot=None) < len(candidates):
            written = self.model._default_manager.using(self.db).filter(pk__in=candidates, terminated_at=now)
            kept = set(written.filter(end_reason=reason).values_list("pk", flat=True))
            candidates = {pk: row for pk, row in candidates.items() if pk in kept}
        for row in candidates.values():
            row.terminated_at, row.end_reason, row.slot = now, reason, None
            row.announce_end()
        return len(candidates)

    def purge(self, *, most: int = 200) -> int:
        """Delete `most` of these for good. Returns how many."""
        keys = list(self.order_by("pk").values_list("pk", flat=True)[:most])
        return self.filter(pk__in=keys).delete()[1].get(self.model._meta.label, 0) if keys else 0

    def admit(self, row: "Session", *, quota: int | None, cap: Cap | None = None, spare: Collection[str] = ()) -> None:
        """Save the new `row` in a slot of its owner, who has `quota` of them, on a server with a `cap`; None is no
        limit.

        When all slots are taken, the owner's session that was idle longest is ended; those whose key hash is in
        `spare` give way last. Never are there more sessions than either limit allows, whoever else is opening: the
        slot is unique in the database, and the server's count is claimed first in the same transaction. Raises
        TooManySessions when the server is full, SlotContention when others keep taking the slot.
        """
        for _attempt in range(ATTEMPTS):
            try:
                if self._try(row, quota, cap, spare):
                    return
            except TooManySessions:
                if cap is None or self.recount(row.server, idle=cap.idle) >= cap.most:
                    raise
        raise SlotContention

    def recount(self, server: str, *, idle: float) -> int:
        """Count the live sessions of a server, which brings its SessionCount up to date. Returns how many."""
        live = self.live(idle=idle).filter(server=server)
        return SessionCount.objects.using(self.db).recount(server, live)

    def _try(self, row: "Session", quota: int | None, cap: Cap | None, spare: Collection[str]) -> bool:
        leaving = None if quota is None else self._take_slot(row, quota, spare)
        now = timezone.now()
        try:
            with transaction.atomic(using=self.db):
                if cap is not None and not SessionCount.objects.using(self.db).claim(row.server, cap.most):
                    raise TooManySessions
                if leaving is not None:
                    going = self.filter(pk=leaving.pk, slot=leaving.slot)
                    if not going.update(terminated_at=now, end_reason=EndReason.QUOTA, slot=None):
                        raise _Overtaken
                row.save(force_insert=True, using=self.db)
        except (IntegrityError, _Overtaken):
            if quota is None:
                raise
            row.pk = None
            return False
        if leaving is not None:
            leaving.terminated_at, leaving.end_reason, leaving.slot = now, EndReason.QUOTA, None
            leaving.announce_end()
        return True

    def _take_slot(self, row: "Session", quota: int, spare: Collection[str]) -> "Session | None":
        """Choose the slot of `row`, which is not its own before it is saved. Returns the session that gives way."""
        # What clients say about themselves is left where it is.
        held = list(
            self.filter(owner=row.owner, slot__isnull=False)
            .defer("client_info", "client_capabilities")
            .order_by("last_seen", "pk")
        )
        held.sort(key=lambda other: other.key_hash in spare)
        # A lowered setting leaves more than the quota. Singly, so that two openers cannot lock rows crosswise.
        while len(held) > quota:
            self.filter(pk=held.pop(0).pk).end(EndReason.QUOTA)
        leaving = held[0] if len(held) == quota else None
        free = set(range(quota)) - {other.slot for other in held if other is not leaving}
        # The slot that is given up is nobody else's to take before the transaction is over.
        row.slot = leaving.slot if leaving is not None and leaving.slot in free else secrets.choice(sorted(free))
        return leaving


class Session(models.Model):
    """A client that said `initialize`. Its key is known to the client alone; the row has the hash."""

    key_hash = models.CharField(_("key hash"), max_length=64, unique=True, editable=False)
    key_prefix = models.CharField(_("key"), max_length=KEY_PREFIX, editable=False)
    server = models.CharField(_("server"), max_length=64)
    revision = models.CharField(_("revision"), max_length=16)
    client_info = models.JSONField(_("client"), default=dict, blank=True)
    client_capabilities = models.JSONField(_("client capabilities"), default=dict, blank=True)
    lists = models.JSONField(_("lists"), default=dict, blank=True, editable=False)
    """Kind of list → digest of what it held when the client was last given it."""
    log_level = models.CharField(_("log level"), max_length=16, blank=True, default="")
    initialized = models.BooleanField(_("initialized"), default=False)
    owner = models.CharField(_("owner"), max_length=OWNER_LENGTH)
    user: "models.ForeignKey[Any, Any]" = models.ForeignKey(
        user_model_name(), verbose_name=_("user"), on_delete=models.CASCADE, null=True, blank=True, related_name="+"
    )
    slot = models.PositiveSmallIntegerField(_("slot"), null=True, blank=True)
    created = models.DateTimeField(_("created"), default=timezone.now)
    last_seen = models.DateTimeField(_("last seen"), default=timezone.now, db_index=True)
    expires = models.DateTimeField(_("expires"))
    terminated_at = models.DateTimeField(_("ended"), null=True, blank=True, db_index=True)
    end_reason = models.CharField(_("reason"), max_length=REASON_LENGTH, blank=True, default="")

    objects = PrimaryManager.from_queryset(SessionQuerySet)()

    class Meta:
        verbose_name = _("session")
        verbose_name_plural = _("sessions")
        ordering = ["-created", "-pk"]
        constraints = [
            # The quota: a live session holds a slot of its owner. Its index also finds an owner's sessions.
            models.UniqueConstraint(fields=["owner", "slot"], name="mcp_session_owner_slot"),
        ]
        indexes = [
            models.Index(
                fields=["server", "last_seen"], condition=models.Q(terminated_at=None), name="mcp_session_live"
            ),
        ]

    def __str__(self) -> str:
        return f"{self._meta.verbose_name} {self.pk}"

    @classmethod
    def hash(cls, key: str) -> str:
        """What the row has in place of the key."""
        return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()

    @classmethod
    def owner_name(cls, owner: str) -> str:
        """An owner's key as the row has it: itself, or its hash when it is too long for the column."""
        return owner if len(owner) <= OWNER_LENGTH else f"sha256:{cls.hash(owner)}"

    def mint(self) -> str:
        """Give the row a new key, 192 random bits in visible ASCII, and return it: the only time it is known here."""
        key = secrets.token_urlsafe(24)
        self.key_hash, self.key_prefix = self.hash(key), key[:KEY_PREFIX]
        return key

    def is_live(self, *, idle: float) -> bool:
        """Is it neither ended nor expired? `idle` is in seconds."""
        now = timezone.now()
        return self.terminated_at is None and self.expires > now and self.last_seen > now - timedelta(seconds=idle)

    def announce_end(self) -> None:
        """Tell this process that the session is over."""
        session_closed.send_robust(sender=type(self), session=self, reason=self.end_reason)


@receiver(pre_delete, sender=Session, dispatch_uid="mcp_django.models.session")
def _end_with_its_row(*, instance: Session, **kwargs: Any) -> None:
    """A session whose row is deleted, or whose user is, ends like any other: first, while its subscriptions exist."""
    if instance.terminated_at is None:
        instance.end_reason = EndReason.DELETED
        instance.announce_end()
