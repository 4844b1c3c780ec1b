"""What is kept: conversations and facts, each of one owner. Nothing names its content in `__str__`: the admin's log
keeps that when the row is gone.
"""

import hashlib
from datetime import timedelta
from typing import Any, ClassVar, Self, TypeVar

from django.contrib.auth import get_user_model
from django.db import models, router
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from mcp_django.contrib.memory.options import get_settings
from mcp_django.contrib.memory.search.tokenizer import indexed, query_words

NAME_LENGTH = 100
TITLE_LENGTH = 200
CATEGORY_LENGTH = 50
M = TypeVar("M", bound=models.Model, covariant=True)


class PrimaryManager(models.Manager[M]):
    """Reads from the database it writes to: what was saved a moment ago is asked for next, and a replica may lag."""

    def get_queryset(self) -> models.QuerySet[M]:
        queryset = super().get_queryset()
        return queryset if self._db else queryset.using(router.db_for_write(self.model))


class Owner(models.Model):
    """Whose memory it is, by `Principal.owner`. Who writes for an owner locks this row first, so that the quotas are
    exact however many do.
    """

    key_hash = models.CharField(_("key hash"), max_length=64, unique=True, editable=False)
    key = models.TextField(_("key"), editable=False)
    """`issuer|subject`. Found by its hash: it has no upper length, and databases differ in what they call equal."""
    user: "models.ForeignKey[Any, Any]" = models.ForeignKey(
        get_user_model(), verbose_name=_("user"), on_delete=models.CASCADE, null=True, blank=True, related_name="+"
    )
    created = models.DateTimeField(_("created"), default=timezone.now, editable=False)
    written = models.DateTimeField(_("last written"), default=timezone.now, editable=False)

    objects = PrimaryManager["Owner"]()

    class Meta:
        verbose_name = _("owner")
        verbose_name_plural = _("owners")
        ordering = ["-written", "-pk"]

    def __str__(self) -> str:
        return f"{self._meta.verbose_name} {self.pk}"

    @classmethod
    def hash(cls, key: str) -> str:
        """What `key_hash` holds for a `Principal.owner`: look it up by this."""
        return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


class EntryQuerySet(models.QuerySet[M]):
    """Sets of what is kept."""

    def of(self, key: str) -> Self:
        """What belongs to a `Principal.owner`, and has not expired."""
        return self.filter(owner__key_hash=Owner.hash(key)).live()

    def live(self) -> Self:
        """What has not expired."""
        return self.filter(models.Q(expires=None) | models.Q(expires__gt=timezone.now()))

    def expired(self) -> Self:
        """What has expired, and waits to be deleted."""
        return self.filter(expires__lte=timezone.now())

    def tagged(self, tag: str) -> Self:
        """What has this tag, in the form in which tags are kept."""
        return self.filter(tags__contains=f"\n{tag}\n")

    def with_words(self, query: str) -> Self:
        """What has, for each word of the query, one that begins so. Nothing for a query without words."""
        words = query_words(query)
        if not words:
            return self.none()
        for word in words:
            self = self.filter(words__contains=f" {word}")
        return self

    def page(self, size: int, after: tuple[Any, int] | None) -> list[M]:
        """The first rows, `size` and one more if there is one, of those that follow the position `after` (`updated` and
        primary key): the latest first.
        """
        rows = self.order_by("-updated", "-pk")
        if after is not None:
            updated, pk = after
            rows = rows.filter(models.Q(updated__lt=updated) | models.Q(updated=updated, pk__lt=pk))
        return list(rows[: size + 1])


class Entry(models.Model):
    """What conversations and facts have in common."""

    owner: "models.ForeignKey[Any, Any]" = models.ForeignKey(
        Owner, verbose_name=_("owner"), on_delete=models.CASCADE, related_name="%(class)ss"
    )
    name = models.CharField(_("id"), max_length=NAME_LENGTH)
    """What the client calls it: unique for the owner, so that nobody learns from it what others have."""
    tags = models.TextField(_("tags"), blank=True, default="", editable=False)
    """Each between line breaks."""
    words = models.TextField(_("words"), blank=True, default="", editable=False)
    size = models.PositiveIntegerField(_("bytes"), default=0, editable=False)
    """Bytes of UTF-8, which count for the quota."""
    lifetime = models.DurationField(_("lifetime"), null=True, blank=True, editable=False)
    """How long after it was last saved it expires, if the client has said so."""
    created = models.DateTimeField(_("created"), default=timezone.now, editable=False)
    updated = models.DateTimeField(_("updated"), default=timezone.now, editable=False)
    expires = models.DateTimeField(_("expires"), null=True, blank=True, editable=False, db_index=True)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self._meta.verbose_name} {self.pk}"

    @property
    def tag_list(self) -> list[str]:
        """The tags, in the order in which they were given."""
        return [tag for tag in self.tags.split("\n") if tag]

    @tag_list.setter
    def tag_list(self, tags: list[str]) -> None:
        self.tags = f"\n{chr(10).join(tags)}\n" if tags else ""

    @property
    def is_expired(self) -> bool:
        """Is it not to be shown any more?"""
        return self.expires is not None and self.expires <= timezone.now()

    def renew(self, most_days: float | None) -> None:
        """Note that it is saved now, which begins its time anew. It is kept for `most_days` at most, None being for
        ever.
        """
        self.updated = timezone.now()
        spans = [self.lifetime] if self.lifetime is not None else []
        if most_days is not None:
            spans.append(timedelta(days=most_days))
        self.expires = self.updated + min(spans) if spans else None


class ConversationQuerySet(EntryQuerySet["Conversation"]):
    """Sets of conversations."""


class FactQuerySet(EntryQuerySet["Fact"]):
    """Sets of facts."""


class Conversation(Entry):
    """A conversation that a client has kept."""

    title = models.CharField(_("title"), max_length=TITLE_LENGTH, blank=True, default="")
    messages = models.JSONField(_("messages"), default=list, blank=True)
    """Objects with `role` and `content`, in order."""
    message_count = models.PositiveIntegerField(_("messages"), default=0, editable=False)
    metadata = models.JSONField(_("metadata"), default=dict, blank=True)

    objects = PrimaryManager.from_queryset(ConversationQuerySet)()

    class Meta:
        verbose_name = _("conversation")
        verbose_name_plural = _("conversations")
        ordering = ["-updated", "-pk"]
        constraints = [models.UniqueConstraint(fields=["owner", "name"], name="mcp_memory_conversation_name")]
        indexes = [models.Index(fields=["owner", "-updated", "-id"], name="mcp_memory_conversation_list")]

    @property
    def uri(self) -> str:
        """Of its resource, which every owner sees their own of."""
        return f"memory://conversations/{self.name}"

    def index(self) -> None:
        """Bring what it is found by up to date."""
        self.words = indexed(self.title, *self.tag_list)
        self.message_count = len(self.messages)

    def renew_now(self) -> None:
        """See `renew`."""
        self.renew(get_settings().conversation_days)


class Fact(Entry):
    """Something about its owner that a client was told to remember."""

    uri: ClassVar[str] = "memory://facts"
    """Of the resource that shows it."""

    text = models.TextField(_("text"))
    category = models.CharField(_("category"), max_length=CATEGORY_LENGTH, blank=True, default="")

    objects = PrimaryManager.from_queryset(FactQuerySet)()

    class Meta:
        verbose_name = _("fact")
        verbose_name_plural = _("facts")
        ordering = ["-updated", "-pk"]
        constraints = [models.UniqueConstraint(fields=["owner", "name"], name="mcp_memory_fact_name")]
        indexes = [models.Index(fields=["owner", "-updated", "-id"], name="mcp_memory_fact_list")]

    def index(self) -> None:
        """Bring what it is found by up to date."""
        self.words = indexed(self.text, self.category, *self.tag_list)

    def renew_now(self) -> None:
        """See `renew`."""
        self.renew(get_settings().fact_days)
