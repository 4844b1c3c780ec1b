"""Sessions of the handshake era as rows: owner, quota and expiry; and their number on each server.

Several workers and the admin write here at the same time. Therefore each statement is atomic by itself, or its
transaction starts with the write. SQLite refuses to upgrade a read lock to a write lock, and PostgreSQL would lose
updates.
"""

import secrets
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Self

from django.db import IntegrityError, models, transaction
from django.db.models import F
from django.db.models.signals import pre_delete
from django.dispatch import receiver
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from mcp_django.models.rows import PrimaryManager, create_user_key, hash_text
from mcp_django.signals import session_closed

KEY_PREFIX_LENGTH = 8
OWNER_LENGTH = 255
REASON_LENGTH = 32

MAX_SLOT_ATTEMPTS = 64
"""Maximum number of attempts to take a slot.

Each round one of the competing processes gets a slot, so this many processes may compete for the slots of an owner.
"""


class SessionCountQuerySet(models.QuerySet["SessionCount"]):
    """Query set of session counts."""

    def reserve(self, server: str, limit: int) -> bool:
        """Increase the count by one unless it has reached `limit`; return True on success.

        This must be the first statement of the transaction that saves the session. Until the commit, other processes
        that open a session on this server wait.
        """
        return bool(self.filter(server=server, at_most__lt=limit).update(at_most=F("at_most") + 1))

    def recount(self, server: str, live: "models.QuerySet[models.Model]") -> int:
        """Set the count to the number of sessions in `live`, and return that number.

        The transaction starts with a write. Therefore no process is between reserving and saving during the count.
        """
        with transaction.atomic(using=self.db):
            self.bulk_create([SessionCount(server=server, at_most=0)], ignore_conflicts=True)
            self.filter(server=server).update(at_most=F("at_most"))
            counted = live.count()
            self.filter(server=server).update(at_most=counted)
        return counted


class SessionCount(models.Model):
    """Upper bound of the live sessions of one server.

    The bound grows with each opened session and does not shrink when a session ends. The sessions are counted when the
    bound reaches the limit, and from time to time. Therefore any change of the rows is corrected soon.
    """

    server = models.CharField(_("server"), max_length=64, primary_key=True)
    at_most = models.PositiveIntegerField(_("maximum sessions"))

    objects = PrimaryManager.from_queryset(SessionCountQuerySet)()

    class Meta:
        verbose_name = _("session count")
        verbose_name_plural = _("session counts")
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.server}: {self.at_most}"


class EndReason(models.TextChoices):
    CLIENT = "client", _("ended by the client")
    CLOSED = "closed", _("its connection was closed")
    IDLE = "idle", _("idle too long")
    LIFETIME = "lifetime", _("open too long")
    QUOTA = "quota", _("replaced by a newer session")
    ADMIN = "admin", _("ended in the admin")
    DELETED = "deleted", _("deleted")


class SlotContention(Exception):
    """Error: too many sessions of one owner, or of a nearly full server, open at once."""


class TooManySessions(Exception):
    """Error: the server has reached its limit of live sessions."""


class SessionLimit(NamedTuple):
    """Session limit of a server: `max_sessions` used within the last `idle_seconds`."""

    max_sessions: int
    idle_seconds: float


class _EvictionConflict(Exception):
    """Error: the session chosen for eviction has ended already."""


class SessionQuerySet(models.QuerySet["Session"]):
    """Query set of sessions; rows are added by `admit`, ended by `end`, deleted by `purge`."""

    def live(self, *, idle: float) -> Self:
        """Return the sessions that have neither ended nor expired; `idle` is in seconds."""
        now = timezone.now()
        return self.filter(terminated_at=None, expires__gt=now, last_seen__gt=now - timedelta(seconds=idle))

    def end_expired(self, *, idle: float, busy_hashes: Collection[str] = (), limit: int = 200) -> int:
        """End about `limit` expired sessions and return their number.

        Sessions whose key hash is in `busy_hashes` are skipped.
        """
        now = timezone.now()
        open_sessions = self.filter(terminated_at=None).exclude(key_hash__in=busy_hashes)
        expired = open_sessions.filter(expires__lte=now).end(EndReason.LIFETIME, limit=limit)
        return expired + open_sessions.filter(last_seen__lte=now - timedelta(seconds=idle)).end(
            EndReason.IDLE, limit=limit
        )

    def touch(self, *, min_interval: float) -> int:
        """Update the time of last use, at most once per `min_interval` seconds.

        Runs one statement.
        """
        now = timezone.now()
        overdue = self.filter(terminated_at=None, last_seen__lt=now - timedelta(seconds=min_interval))
        return overdue.update(last_seen=now)

    def ended(self, *, before: datetime | None = None) -> Self:
        """Return the ended sessions, optionally only those ended before a time."""
        return self.filter(terminated_at__isnull=False) if before is None else self.filter(terminated_at__lt=before)

    def end(self, reason: str, *, limit: int | None = None) -> int:
        """End up to `limit` of these sessions, send `session_closed` for each, return the number.

        A session that has ended or was used since the query is skipped.
        """
        candidates = {row.pk: row for row in self.filter(terminated_at=None).order_by("pk")[:limit]}
        if not candidates:
            return 0

        now, reason = timezone.now(), reason[:REASON_LENGTH]
        open_sessions = self.filter(pk__in=candidates, terminated_at=None)
        if open_sessions.update(terminated_at=now, end_reason=reason, slot=None) < len(candidates):
            ended_sessions = self.model._default_manager.using(self.db).filter(pk__in=candidates, terminated_at=now)
            ended_keys = set(ended_sessions.filter(end_reason=reason).values_list("pk", flat=True))
            candidates = {pk: row for pk, row in candidates.items() if pk in ended_keys}

        for row in candidates.values():
            row.terminated_at, row.end_reason, row.slot = now, reason, None
            row.send_closed_signal()
        return len(candidates)

    def purge(self, *, limit: int = 200) -> int:
        """Delete up to `limit` of these rows and return their number."""
        keys = list(self.order_by("pk").values_list("pk", flat=True)[:limit])
        return self.filter(pk__in=keys).delete()[1].get(self.model._meta.label, 0) if keys else 0

    def admit(
        self, row: "Session", *, quota: int | None, limit: SessionLimit | None = None, busy_hashes: Collection[str] = ()
    ) -> None:
        """Save the new `row` in a slot of its owner.

        The owner has `quota` slots, and the server a `limit`; None means unlimited. If all slots are taken, the owner's
        session that was idle longest is ended. Sessions whose key hash is in `busy_hashes` are evicted last.

        Concurrent calls never exceed either limit: the slot is unique in the database, and the server's count is
        reserved first in the same transaction.

        Raises:
            TooManySessions: the server is full.
            SlotContention: concurrent calls kept taking the slot.
        """
        for _attempt in range(MAX_SLOT_ATTEMPTS):
            try:
                if self._try_insert(row, quota, limit, busy_hashes):
                    return
            except TooManySessions:
                if limit is None or self.recount(row.server, idle=limit.idle_seconds) >= limit.max_sessions:
                    raise
        raise SlotContention

    def recount(self, server: str, *, idle: float) -> int:
        """Count the live sessions of a server, update its SessionCount and return the number."""
        live = self.live(idle=idle).filter(server=server)
        return SessionCount.objects.using(self.db).recount(server, live)

    def _try_insert(
        self, row: "Session", quota: int | None, limit: SessionLimit | None, busy_hashes: Collection[str]
    ) -> bool:
        evicted = None if quota is None else self._choose_slot(row, quota, busy_hashes)
        now = timezone.now()

        try:
            with transaction.atomic(using=self.db):
                if limit is not None and not SessionCount.objects.using(self.db).reserve(
                    row.server, limit.max_sessions
                ):
                    raise TooManySessions
                if evicted is not None:
                    eviction = self.filter(pk=evicted.pk, slot=evicted.slot)
                    if not eviction.update(terminated_at=now, end_reason=EndReason.QUOTA, slot=None):
                        raise _EvictionConflict
                row.save(force_insert=True, using=self.db)
        except (IntegrityError, _EvictionConflict):
            if quota is None:
                raise
            row.pk = None
            return False

        if evicted is not None:
            evicted.terminated_at, evicted.end_reason, evicted.slot = now, EndReason.QUOTA, None
            evicted.send_closed_signal()
        return True

    def _choose_slot(self, row: "Session", quota: int, busy_hashes: Collection[str]) -> "Session | None":
        """Choose the slot of `row`, and return the session to evict, if any.

        The slot belongs to `row` only once the row is saved.
        """
        # The data that clients send about themselves is not needed, and may be large.
        slot_holders = list(
            self.filter(owner=row.owner, slot__isnull=False)
            .defer("client_info", "client_capabilities")
            .order_by("last_seen", "pk")
        )
        slot_holders.sort(key=lambda other: other.key_hash in busy_hashes)

        # A lowered quota leaves surplus sessions. They are ended one by one, so that two processes cannot deadlock.
        while len(slot_holders) > quota:
            self.filter(pk=slot_holders.pop(0).pk).end(EndReason.QUOTA)

        evicted = slot_holders[0] if len(slot_holders) == quota else None
        free = set(range(quota)) - {other.slot for other in slot_holders if other is not evicted}
        # No other process can take the slot of the evicted session before the transaction ends.
        row.slot = evicted.slot if evicted is not None and evicted.slot in free else secrets.choice(sorted(free))
        return evicted


class Session(models.Model):
    """Session opened by a client's `initialize` request.

    Only the client holds the session key. The row holds its hash.
    """

    key_hash = models.CharField(_("key hash"), max_length=64, unique=True, editable=False)
    key_prefix = models.CharField(_("key"), max_length=KEY_PREFIX_LENGTH, editable=False)
    server = models.CharField(_("server"), max_length=64)
    revision = models.CharField(_("revision"), max_length=16)
    client_info = models.JSONField(_("client"), default=dict, blank=True)
    client_capabilities = models.JSONField(_("client capabilities"), default=dict, blank=True)
    lists = models.JSONField(_("lists"), default=dict, blank=True, editable=False)
    """Kind of list → digest of its contents when the client last received it."""
    log_level = models.CharField(_("log level"), max_length=16, blank=True, default="")
    initialized = models.BooleanField(_("initialized"), default=False)
    owner = models.CharField(_("owner"), max_length=OWNER_LENGTH)
    user = create_user_key(null=True, blank=True)
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
            # The quota: a live session holds a slot of its owner. The index of the constraint also finds an owner's
            # sessions.
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
        """Return the digest that the row stores instead of the key."""
        return hash_text(key)

    @classmethod
    def encode_owner(cls, owner: str) -> str:
        """Return an owner's key as stored: unchanged, or hashed if it exceeds the column."""
        return owner if len(owner) <= OWNER_LENGTH else f"sha256:{cls.hash(owner)}"

    def generate_key(self) -> str:
        """Give the row a new key and return the key, which is not stored.

        The key has 192 random bits in visible ASCII.
        """
        key = secrets.token_urlsafe(24)
        self.key_hash = self.hash(key)
        self.key_prefix = key[:KEY_PREFIX_LENGTH]
        return key

    def is_live(self, *, idle: float) -> bool:
        """Return True if the session has neither ended nor expired; `idle` is in seconds."""
        now = timezone.now()
        return self.terminated_at is None and self.expires > now and self.last_seen > now - timedelta(seconds=idle)

    def send_closed_signal(self) -> None:
        """Send `session_closed` to the receivers in this process."""
        session_closed.send_robust(sender=type(self), session=self, reason=self.end_reason)


@receiver(pre_delete, sender=Session, dispatch_uid="mcp_django.models.session")
def _end_deleted_session(*, instance: Session, **kwargs: Any) -> None:
    """End a session whose row is deleted, also by the deletion of its user.

    The signal is sent before the deletion, while the session's subscriptions exist.
    """
    if instance.terminated_at is None:
        instance.end_reason = EndReason.DELETED
        instance.send_closed_signal()
