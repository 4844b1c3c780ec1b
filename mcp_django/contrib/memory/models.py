"""Stored conversations and facts, each of one owner.

`__str__` never contains content: the log of the admin outlives the row.
"""

import hashlib
from datetime import timedelta
from typing import Any, ClassVar, Self, TypeVar

from django.contrib.auth import get_user_model
from django.db import models, router
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from mcp_django.contrib.memory.options import get_settings
from mcp_django.contrib.memory.search import build_index_text, parse_query

MAX_NAME_CHARACTERS = 100
MAX_TITLE_CHARACTERS = 200
MAX_CATEGORY_CHARACTERS = 50
M = TypeVar("M", bound=models.Model, covariant=True)


class MemoryManager(models.Manager[M]):
    """Manager that reads from the primary database.

    Clients read their data right after a write, and replicas may lag.
    """

    def get_queryset(self) -> models.QuerySet[M]:
        queryset = super().get_queryset()
        return queryset if self._db else queryset.using(router.db_for_write(self.model))


class Owner(models.Model):
    """Owner of stored data, by `Principal.owner`.

    Each write locks this row first, so that quotas are exact under concurrency.
    """

    key_hash = models.CharField(_("key hash"), max_length=64, unique=True, editable=False)
    key = models.TextField(_("key"), editable=False)
    """`issuer|subject`, looked up by its hash.

    The key has no maximum length, and databases compare text differently.
    """
    user: "models.ForeignKey[Any, Any]" = models.ForeignKey(
        get_user_model(), verbose_name=_("user"), on_delete=models.CASCADE, null=True, blank=True, related_name="+"
    )
    created = models.DateTimeField(_("created"), default=timezone.now, editable=False)
    written = models.DateTimeField(_("last written"), default=timezone.now, editable=False)

    objects = MemoryManager["Owner"]()

    class Meta:
        verbose_name = _("owner")
        verbose_name_plural = _("owners")
        ordering = ["-written", "-pk"]

    def __str__(self) -> str:
        return f"{self._meta.verbose_name} {self.pk}"

    @classmethod
    def hash_key(cls, key: str) -> str:
        """Return the `key_hash` of a `Principal.owner`, for lookups."""
        return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


class EntryQuerySet(models.QuerySet[M]):
    """Query set of conversations or facts."""

    def for_owner(self, key: str) -> Self:
        """Select the live entries of a `Principal.owner`."""
        return self.filter(owner__key_hash=Owner.hash_key(key)).live()

    def live(self) -> Self:
        """Select the entries that have not expired."""
        return self.filter(models.Q(expires=None) | models.Q(expires__gt=timezone.now()))

    def expired(self) -> Self:
        """Select the expired entries that are still to be deleted."""
        return self.filter(expires__lte=timezone.now())

    def with_tag(self, tag: str) -> Self:
        """Select the entries with this tag, given in its stored form."""
        return self.filter(tags__contains=f"\n{tag}\n")

    def with_words(self, query: str) -> Self:
        """Select the entries with a word for each query word as prefix.

        Empty for a query without words.
        """
        words = parse_query(query)
        if not words:
            return self.none()
        for word in words:
            self = self.filter(words__contains=f" {word}")
        return self

    def page(self, size: int, after: tuple[Any, int] | None) -> list[M]:
        """Return the latest `size` rows after a position, plus one if there are more.

        The position is `updated` and the primary key of a row.
        """
        rows = self.order_by("-updated", "-pk")
        if after is not None:
            updated, pk = after
            rows = rows.filter(models.Q(updated__lt=updated) | models.Q(updated=updated, pk__lt=pk))
        return list(rows[: size + 1])


class Entry(models.Model):
    """Common base of conversations and facts."""

    owner: "models.ForeignKey[Any, Any]" = models.ForeignKey(
        Owner, verbose_name=_("owner"), on_delete=models.CASCADE, related_name="%(class)ss"
    )
    name = models.CharField(_("id"), max_length=MAX_NAME_CHARACTERS)
    """Id of the entry, unique per owner, so that it reveals nothing of other owners."""
    tags = models.TextField(_("tags"), blank=True, default="", editable=False)
    """Tags, each between line breaks."""
    words = models.TextField(_("words"), blank=True, default="", editable=False)
    size = models.PositiveIntegerField(_("bytes"), default=0, editable=False)
    """Bytes of UTF-8 that count for the quota."""
    lifetime = models.DurationField(_("lifetime"), null=True, blank=True, editable=False)
    """Time from the last save until expiry, if the client has set one."""
    created = models.DateTimeField(_("created"), default=timezone.now, editable=False)
    updated = models.DateTimeField(_("updated"), default=timezone.now, editable=False)
    expires = models.DateTimeField(_("expires"), null=True, blank=True, editable=False, db_index=True)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self._meta.verbose_name} {self.pk}"

    @property
    def tag_list(self) -> list[str]:
        """Tags in the given order."""
        return [tag for tag in self.tags.split("\n") if tag]

    @tag_list.setter
    def tag_list(self, tags: list[str]) -> None:
        self.tags = f"\n{chr(10).join(tags)}\n" if tags else ""

    @property
    def is_expired(self) -> bool:
        """True if the entry must not be shown."""
        return self.expires is not None and self.expires <= timezone.now()

    def renew(self, max_days: float | None) -> None:
        """Set the time of the save to now, and the expiry accordingly.

        The lifetime is at most `max_days`; None means no maximum.
        """
        self.updated = timezone.now()
        spans = [self.lifetime] if self.lifetime is not None else []
        if max_days is not None:
            spans.append(timedelta(days=max_days))
        self.expires = self.updated + min(spans) if spans else None


class ConversationQuerySet(EntryQuerySet["Conversation"]):
    """Query set of conversations."""


class FactQuerySet(EntryQuerySet["Fact"]):
    """Query set of facts."""


class Conversation(Entry):
    """A conversation saved by a client."""

    title = models.CharField(_("title"), max_length=MAX_TITLE_CHARACTERS, blank=True, default="")
    messages = models.JSONField(_("messages"), default=list, blank=True)
    """Objects with `role` and `content`, in order."""
    message_count = models.PositiveIntegerField(_("messages"), default=0, editable=False)
    metadata = models.JSONField(_("metadata"), default=dict, blank=True)

    objects = MemoryManager.from_queryset(ConversationQuerySet)()

    class Meta:
        verbose_name = _("conversation")
        verbose_name_plural = _("conversations")
        ordering = ["-updated", "-pk"]
        constraints = [models.UniqueConstraint(fields=["owner", "name"], name="mcp_memory_conversation_name")]
        indexes = [models.Index(fields=["owner", "-updated", "-id"], name="mcp_memory_conversation_list")]

    @property
    def uri(self) -> str:
        """URI of the resource, under which each owner sees the own conversation."""
        return f"memory://conversations/{self.name}"

    def update_index(self) -> None:
        """Update the search words and the number of messages."""
        self.words = build_index_text(self.title, *self.tag_list)
        self.message_count = len(self.messages)

    def renew_now(self) -> None:
        """Renew the entry with the lifetime of the settings."""
        self.renew(get_settings().conversation_days)


class Fact(Entry):
    """A fact about its owner, saved by a client."""

    uri: ClassVar[str] = "memory://facts"
    """URI of the resource that contains the fact."""

    text = models.TextField(_("text"))
    category = models.CharField(_("category"), max_length=MAX_CATEGORY_CHARACTERS, blank=True, default="")

    objects = MemoryManager.from_queryset(FactQuerySet)()

    class Meta:
        verbose_name = _("fact")
        verbose_name_plural = _("facts")
        ordering = ["-updated", "-pk"]
        constraints = [models.UniqueConstraint(fields=["owner", "name"], name="mcp_memory_fact_name")]
        indexes = [models.Index(fields=["owner", "-updated", "-id"], name="mcp_memory_fact_list")]

    def update_index(self) -> None:
        """Update the search words."""
        self.words = build_index_text(self.text, self.category, *self.tag_list)

    def renew_now(self) -> None:
        """Renew the entry with the lifetime of the settings."""
        self.renew(get_settings().fact_days)
