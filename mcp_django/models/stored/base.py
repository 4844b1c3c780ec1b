"""Common base of stored prompts and resources: servers, permissions and versions."""

from typing import Any, ClassVar, Self

from django.core.exceptions import ValidationError
from django.core.validators import MaxLengthValidator, RegexValidator
from django.db import models, router, transaction
from django.utils.translation import gettext_lazy as _

from mcp_django.models.rows import StoredState
from mcp_django.models.token import check_scopes
from mcp_django.server.primitives.decorators import NAME_PATTERN

MAX_DESCRIPTION_CHARS = 10_000
"""Maximum number of characters of a description."""
MAX_TAGS = 20
"""Maximum number of tags of one row; each has at most 64 characters."""
MAX_VERSIONS = 100
"""Maximum number of stored versions of one row; the oldest are deleted first."""

_PERMISSION = r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+"

check_name = RegexValidator(
    rf"\A(?:{NAME_PATTERN.pattern})\Z", _("A name has 1 to 64 letters without accents, digits, or one of _ - .")
)
check_permissions = RegexValidator(
    rf"\A{_PERMISSION}(?: {_PERMISSION})*\Z",
    _("Write permissions like “app.codename”, with a space between two."),
)


def check_tags(tags: Any) -> None:
    """Raise ValidationError unless `tags` is a list of a few short words."""
    is_short_list = isinstance(tags, list) and len(tags) <= MAX_TAGS
    if not is_short_list or not all(isinstance(tag, str) and tag.strip() and len(tag) <= 64 for tag in tags):
        raise ValidationError(
            _("Tags must be a list of up to %d words of up to 64 characters.") % MAX_TAGS, code="tags"
        )


class StoredRow(models.Model):
    """Base model of rows of stored primitives; saved in one transaction with the cache version."""

    SNAPSHOT_FIELDS: ClassVar[tuple[str, ...]]
    """Fields that a version holds unchanged."""

    class Meta:
        abstract = True

    def save(self, *args: Any, **kwargs: Any) -> None:
        using = kwargs.get("using") or router.db_for_write(type(self), instance=self)
        # No savepoint, as in Django's own save, so that one transaction sends each notification once.
        with transaction.atomic(using=using, savepoint=False):
            super().save(*args, **kwargs)

    def snapshot(self) -> dict[str, Any]:
        """Return the row's part of a version as JSON-compatible data."""
        return {name: getattr(self, name) for name in self.SNAPSHOT_FIELDS}


class Stored(StoredRow):
    """Prompt or resource stored as a row."""

    SNAPSHOT_FIELDS: ClassVar[tuple[str, ...]] = (
        "title",
        "description",
        "server",
        "enabled",
        "permission",
        "scopes",
        "tags",
    )

    server = models.CharField(_("server"), max_length=64, blank=True, default="")
    title = models.CharField(_("title"), max_length=200, blank=True)
    description = models.TextField(
        _("description"),
        blank=True,
        validators=[MaxLengthValidator(MAX_DESCRIPTION_CHARS)],
    )
    enabled = models.BooleanField(_("enabled"), default=True)
    permission = models.CharField(
        _("permission"),
        max_length=255,
        blank=True,
        validators=[check_permissions],
    )
    scopes = models.JSONField(_("scopes"), default=list, blank=True, validators=[check_scopes])
    tags = models.JSONField(_("tags"), default=list, blank=True, validators=[check_tags])
    created = models.DateTimeField(_("created"), auto_now_add=True)
    updated = models.DateTimeField(_("changed"), auto_now=True)

    published_key: tuple[str, str] | None = None
    """Server and key known to clients, as read from the database."""

    class Meta:
        abstract = True

    @property
    def key(self) -> str:
        """Unique key on a server: a name or a URI."""
        raise NotImplementedError

    @classmethod
    def from_db(cls, *args: Any, **kwargs: Any) -> Self:
        row = super().from_db(*args, **kwargs)
        if row.get_deferred_fields().isdisjoint({"server", "name", "uri"}):
            row.published_key = row.server, row.key
        return row

    def apply_snapshot(self, data: dict[str, Any]) -> None:
        """Set the fields from a snapshot and save them.

        Raises:
            ValidationError: the snapshot is not valid any more.
        """
        for name in self.SNAPSHOT_FIELDS:
            if name in data:
                setattr(self, name, data[name])
        self.full_clean()
        self.save()

    def record(self, user: Any = None, note: str = "") -> Any:
        """Save the current state as a version by `user`; return None if nothing changed.

        The admin calls this on each save. Code that changes rows may call it too. Otherwise the admin records such
        changes without a user before it changes the row the next time.
        """
        versions: Any = getattr(self, "versions")  # noqa: B009  a related name that mypy cannot see
        with transaction.atomic(using=self._state.db, savepoint=False):
            StoredState.objects.using(
                self._state.db
            ).change_version()  # one process at a time, because versions are numbered
            last = versions.order_by("-number").first()
            data = self.snapshot()
            before = {} if last is None else last.data
            changes = [name for name in {**data, **before} if before.get(name) != data.get(name)]
            if last is not None and not changes:
                return None
            number = 1 if last is None else last.number + 1
            username = "" if user is None else user.get_username()[:150]
            version = versions.create(
                number=number, user=user, username=username, note=note, data=data, changes=changes if last else []
            )
            versions.filter(number__lte=number - MAX_VERSIONS).delete()
        return version

    def restore(self, version: Any, user: Any = None, note: str = "") -> Any:
        """Restore the state of `version` as a new version; return None if nothing changed.

        Raises:
            ValidationError: the state is not valid any more, for example because its name is taken. Nothing is changed.
        """
        with transaction.atomic(using=self._state.db):
            type(self)._default_manager.using(self._state.db).get(pk=self.pk).record()
            self.apply_snapshot(version.data)
            return self.record(user, note)
