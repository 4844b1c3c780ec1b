"""What stored prompts and stored resources have in common: where they are served, to whom, and their versions."""

from collections.abc import Iterable
from typing import Any, ClassVar, Self, TypeVar

from django.core.exceptions import ValidationError
from django.core.validators import MaxLengthValidator, RegexValidator
from django.db import models, router, transaction
from django.utils.translation import gettext_lazy as _

from mcp_django.models.stored.cache_version import StoredState
from mcp_django.models.token import check_scopes
from mcp_django.server.primitives.decorators import NAME

DESCRIPTION = 10_000
"""Characters of a description."""
TAGS = 20
"""Tags of one row, and 64 characters each."""
VERSIONS = 100
"""Versions that are kept of one row; the oldest go first."""

M = TypeVar("M", bound=models.Model, covariant=True)

_PERMISSION = r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+"

check_name = RegexValidator(
    rf"\A(?:{NAME.pattern})\Z", _("A name has 1 to 64 letters without accents, digits, or one of _ - .")
)
check_permissions = RegexValidator(
    rf"\A{_PERMISSION}(?: {_PERMISSION})*\Z",
    _("Write permissions like “app.codename”, with a space between two."),
)


def check_tags(tags: Any) -> None:
    """Raise ValidationError unless `tags` is a list of a few short words."""
    fits = isinstance(tags, list) and len(tags) <= TAGS
    if not fits or not all(isinstance(tag, str) and tag.strip() and len(tag) <= 64 for tag in tags):
        raise ValidationError(_("Tags are a list of up to %d words of up to 64 characters.") % TAGS, code="tags")


class StoredQuerySet(models.QuerySet[M]):
    """Sets of rows that processes keep: what sends no signals changes the mark, too. Clients are not told of it."""

    def update(self, **kwargs: Any) -> int:
        self._for_write = True
        with transaction.atomic(using=self.db, savepoint=False):
            changed = super().update(**kwargs)
            StoredState.objects.using(self.db).touch()
        return changed

    def bulk_create(self, objs: Iterable[Any], *args: Any, **kwargs: Any) -> list[Any]:
        self._for_write = True
        with transaction.atomic(using=self.db, savepoint=False):
            made = super().bulk_create(objs, *args, **kwargs)
            StoredState.objects.using(self.db).touch()
        return made


class StoredRow(models.Model):
    """A row that is part of what is stored: it is written together with the mark."""

    class Meta:
        abstract = True

    def save(self, *args: Any, **kwargs: Any) -> None:
        using = kwargs.get("using") or router.db_for_write(type(self), instance=self)
        # Without a savepoint, as Django saves, so that what one transaction tells of is told once.
        with transaction.atomic(using=using, savepoint=False):
            super().save(*args, **kwargs)


class Stored(StoredRow):
    """A prompt or resource that is a row."""

    SNAPSHOT: ClassVar[tuple[str, ...]] = ("title", "description", "server", "enabled", "permission", "scopes", "tags")
    """The fields that a version holds as they are."""

    server = models.CharField(
        _("server"), max_length=64, blank=True, default="", help_text=_("The alias of the only server that has it.")
    )
    title = models.CharField(_("title"), max_length=200, blank=True, help_text=_("What people see."))
    description = models.TextField(
        _("description"),
        blank=True,
        validators=[MaxLengthValidator(DESCRIPTION)],
        help_text=_("What it is for, said to people and models."),
    )
    enabled = models.BooleanField(_("enabled"), default=True, help_text=_("What is not enabled is not there."))
    permission = models.CharField(
        _("permission"),
        max_length=255,
        blank=True,
        validators=[check_permissions],
        help_text=_(
            "The Django permission that callers need, such as “shop.view_order”; several with spaces between them are "
            "all needed. Nobody else finds out that it exists. Without one it is for everybody who may use the server."
        ),
    )
    scopes = models.JSONField(_("scopes"), default=list, blank=True, validators=[check_scopes])
    tags = models.JSONField(_("tags"), default=list, blank=True, validators=[check_tags])
    created = models.DateTimeField(_("created"), auto_now_add=True)
    updated = models.DateTimeField(_("changed"), auto_now=True)

    told_before: tuple[str, str] | None = None
    """Server and key under which clients know it, as it was read."""

    class Meta:
        abstract = True

    @property
    def key(self) -> str:
        """What makes it unique on a server: a name or a URI."""
        raise NotImplementedError

    @classmethod
    def from_db(cls, *args: Any, **kwargs: Any) -> Self:
        row = super().from_db(*args, **kwargs)
        if row.get_deferred_fields().isdisjoint({"server", "name", "uri"}):
            row.told_before = row.server, row.key
        return row

    def snapshot(self) -> dict[str, Any]:
        """All that a version holds, as JSON."""
        return {name: getattr(self, name) for name in self.SNAPSHOT}

    def take(self, data: dict[str, Any]) -> None:
        """Be what a snapshot says, and save that. Raises ValidationError where that is not possible any more."""
        for name in self.SNAPSHOT:
            if name in data:
                setattr(self, name, data[name])
        self.full_clean()
        self.save()

    def record(self, user: Any = None, note: str = "") -> Any:
        """Make a version of what it is now, by `user`; None when that is what the last version says.

        The admin does this whenever somebody saves. Code that changes rows may do it by itself; otherwise the admin
        does it, in nobody's name, before it changes the row the next time.
        """
        versions: Any = getattr(self, "versions")  # noqa: B009  each subclass has them, which mypy cannot know
        with transaction.atomic(using=self._state.db, savepoint=False):
            StoredState.objects.using(self._state.db).touch()  # one at a time, because versions are numbered
            last = versions.order_by("-number").first()
            data = self.snapshot()
            before = {} if last is None else last.data
            changes = [name for name in {**data, **before} if before.get(name) != data.get(name)]
            if last is not None and not changes:
                return None
            number = 1 if last is None else last.number + 1
            username = "" if user is None else user.get_username()[:150]
            made = versions.create(
                number=number, user=user, username=username, note=note, data=data, changes=changes if last else []
            )
            versions.filter(number__lte=number - VERSIONS).delete()
        return made

    def restore(self, version: Any, user: Any = None, note: str = "") -> Any:
        """Be again what `version` says, as a new version, which is returned; None when nothing is another then.

        Raises ValidationError, and changes nothing, when that is not possible any more: its name may be taken.
        """
        with transaction.atomic(using=self._state.db):
            type(self)._default_manager.using(self._state.db).get(pk=self.pk).record()
            self.take(version.data)
            return self.record(user, note)
