"""Rules that administrators add to the declarations in code: tool policies and scope grants.

Rules only restrict. Groups are stored by name: if a group is deleted or renamed, the rule still requires it, and no
user satisfies the rule any more. A rule never loses its requirement.
"""

from typing import Any, TypeVar

from django.core.exceptions import ValidationError
from django.core.validators import RegexValidator
from django.db import models, router, transaction
from django.utils.translation import gettext_lazy as _

from mcp_django.models.rows import RULES_PK, PrimaryManager, StoredState, VersionedQuerySet
from mcp_django.models.token import check_scopes
from mcp_django.server.primitives.base import Rate

MAX_LIST_ENTRIES = 100
"""Maximum number of entries in one list of a row."""

M = TypeVar("M", bound=models.Model, covariant=True)

check_pattern = RegexValidator(
    r"\A[A-Za-z0-9_.*?\-]{1,128}\Z",
    _("A tool's name has letters without accents, digits, or one of _ - . — with * for any of these, ? for one."),
)


def check_names(names: Any) -> None:
    """Raise ValidationError unless `names` is a short list of short strings."""
    is_short_list = isinstance(names, list) and len(names) <= MAX_LIST_ENTRIES
    if not is_short_list or not all(
        isinstance(name, str) and name.strip() and len(name) <= 255 and "\0" not in name for name in names
    ):
        raise ValidationError(
            _("Write a list of up to %d names of up to 255 characters.") % MAX_LIST_ENTRIES, code="names"
        )


def check_rate(text: str) -> None:
    """Raise ValidationError unless `text` is a valid rate."""
    try:
        Rate.parse(text)
    except ValueError:
        message = _("Invalid rate. Write a number, a slash and a unit, such as 10/m or 5/15m. Units are s, m, h and d.")
        raise ValidationError(message, code="rate") from None


def check_scope(text: str) -> None:
    """Raise ValidationError unless `text` is one scope (RFC 6749, section 3.3)."""
    check_scopes([text])


class RuleQuerySet(VersionedQuerySet[M]):
    """Query set of rules."""

    version_pk = RULES_PK


class Rule(models.Model):
    """Base model of rules. Each save changes the version of the rules."""

    note = models.CharField(_("note"), max_length=200, blank=True)
    updated = models.DateTimeField(_("changed"), auto_now=True)

    class Meta:
        abstract = True

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save the row and change the version of the rules in one transaction."""
        with transaction.atomic(using=kwargs.get("using") or router.db_for_write(type(self), instance=self)):
            super().save(*args, **kwargs)
            StoredState.objects.using(self._state.db).change_version(RULES_PK)


class ToolPolicy(Rule):
    """Restriction of the tools that match a name pattern.

    It disables the tools, requires more of callers, or limits their rate.
    """

    server = models.CharField(_("server"), max_length=64, blank=True, default="")
    tool = models.CharField(
        _("tool"),
        max_length=128,
        validators=[check_pattern],
    )
    disabled = models.BooleanField(_("disabled"), default=False)
    scopes = models.JSONField(
        _("scopes"),
        default=list,
        blank=True,
        validators=[check_scopes],
    )
    groups = models.JSONField(
        _("groups"),
        default=list,
        blank=True,
        validators=[check_names],
    )
    rate = models.CharField(
        _("rate"),
        max_length=32,
        blank=True,
        validators=[check_rate],
    )

    objects: "PrimaryManager[ToolPolicy]" = PrimaryManager.from_queryset(RuleQuerySet)()

    class Meta:
        verbose_name = _("tool policy")
        verbose_name_plural = _("tool policies")
        ordering = ["tool", "server"]
        constraints = [models.UniqueConstraint(fields=["tool", "server"], name="mcp_one_policy_for_a_tool")]

    def __str__(self) -> str:
        return f"{self.tool} ({self.server})" if self.server else self.tool

    def clean(self) -> None:
        """Raise ValidationError for a policy without any restriction."""
        if not (self.disabled or self.scopes or self.groups or self.rate):
            text = _("This policy has no effect: disable the tool, or enter scopes, groups or a rate.")
            raise ValidationError(text, code="empty")


class Access(ToolPolicy):
    """Page that compares the access of callers to tools. It has no rows of its own."""

    class Meta:
        proxy = True
        default_permissions = ("view",)
        verbose_name = _("Who may do what")
        verbose_name_plural = _("Who may do what")


class ScopeGrant(Rule):
    """Restriction of the users and clients that may hold a scope.

    Without a grant, every user who received the scope by delegation may hold it.
    """

    scope = models.CharField(
        _("scope"),
        max_length=128,
        unique=True,
        validators=[check_scope],
    )
    groups = models.JSONField(
        _("groups"),
        default=list,
        blank=True,
        validators=[check_names],
    )
    users = models.JSONField(
        _("users"),
        default=list,
        blank=True,
        validators=[check_names],
    )
    """Primary keys as texts, so that a new name of a user changes nothing."""
    clients = models.JSONField(
        _("clients"),
        default=list,
        blank=True,
        validators=[check_names],
    )
    tokens = models.BooleanField(_("personal access tokens"), default=True)

    objects: "PrimaryManager[ScopeGrant]" = PrimaryManager.from_queryset(RuleQuerySet)()

    class Meta:
        verbose_name = _("scope grant")
        verbose_name_plural = _("scope grants")
        ordering = ["scope"]

    def __str__(self) -> str:
        return self.scope
