"""Service accounts: users that programs act as, such as a CI job or an agent on a server.

A service account has no password and cannot log in. It has personal access tokens, and the permissions and groups of
its user. A person owns it. Without an owner its tokens go on working until they expire, but it gets no new ones.
"""

from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.exceptions import FieldDoesNotExist, ValidationError
from django.db import connections, models, transaction
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from mcp_django.models.rows import PrimaryManager, create_user_key

MAX_DESCRIPTION_CHARACTERS = 500
_migrated_aliases: set[str] = set()
"""Databases in which this process has found the table of accounts."""


class ServiceAccountQuerySet(models.QuerySet["ServiceAccount"]):
    """Query set of service accounts."""

    def delete(self) -> tuple[int, dict[str, int]]:
        """Delete the accounts with their users, tokens and all rows that depend on them."""
        users = get_user_model()._base_manager.filter(pk__in=list(self.values_list("user", flat=True)))
        deleted: tuple[int, dict[str, int]] = users.delete()
        return deleted

    delete.alters_data = True  # type: ignore[attr-defined]
    delete.queryset_only = True  # type: ignore[attr-defined]


class ServiceAccount(models.Model):
    """User that a program acts as: without a password, and with a person who is responsible for it."""

    user: "models.OneToOneField[Any, Any]" = models.OneToOneField(
        settings.AUTH_USER_MODEL,
        verbose_name=_("user"),
        on_delete=models.CASCADE,
        related_name="+",
        editable=False,
    )
    owner = create_user_key(
        verbose_name=_("owner"),
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
    )
    description = models.CharField(
        _("description"),
        max_length=MAX_DESCRIPTION_CHARACTERS,
        blank=True,
    )
    created = models.DateTimeField(_("created"), default=timezone.now, editable=False)

    user_id: Any
    owner_id: Any
    objects: "PrimaryManager[ServiceAccount]" = PrimaryManager.from_queryset(ServiceAccountQuerySet)()

    class Meta:
        verbose_name = _("service account")
        verbose_name_plural = _("service accounts")
        ordering = ["-created", "-pk"]

    def __str__(self) -> str:
        return str(self.user)

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        """Delete the account with its user, tokens and all rows that depend on them."""
        deleted: tuple[int, dict[str, int]] = self.user.delete(*args, **kwargs)
        return deleted

    delete.alters_data = True  # type: ignore[attr-defined]

    def clean(self) -> None:
        """Raise ValidationError for an owner that is a service account itself."""
        if self.owner_id is not None and is_service_account(self.owner_id):
            message = _("A service account cannot own another one: choose a person.")
            raise ValidationError({"owner": message}, code="owner")

    @property
    def has_owner(self) -> bool:
        """Return True if the owner is an active user."""
        return self.owner is not None and bool(self.owner.is_active)

    @property
    def can_log_in(self) -> bool:
        """Return True if the user got a password, or the flag that opens the admin."""
        user: Any = self.user
        return bool(user.has_usable_password() or getattr(user, "is_staff", False))


def is_service_account(user_pk: Any) -> bool:
    """Return True for the user of a service account, by one statement on an index.

    Without the table, because `migrate` has not run yet, there are no accounts. A process looks for the table until it
    finds it. Other failures of the database are raised.
    """
    accounts = ServiceAccount.objects.filter(user=user_pk)
    if accounts.db not in _migrated_aliases:
        if ServiceAccount._meta.db_table not in connections[accounts.db].introspection.table_names():
            return False
        _migrated_aliases.add(accounts.db)
    return accounts.exists()


def has_active_field() -> bool:
    """Return True if users can be deactivated: `is_active` is a field of the user model."""
    try:
        get_user_model()._meta.get_field("is_active")
    except FieldDoesNotExist:
        return False
    return True


def build_ownerless_condition() -> models.Q:
    """Return the condition of accounts whose owner was deleted or is inactive."""
    condition = models.Q(owner=None)
    if has_active_field():
        condition |= models.Q(owner__is_active=False)
    return condition


def get_user_fields() -> tuple[str, ...]:
    """Return the names of the required fields of the user model, that of the user's name first."""
    model = get_user_model()
    return (model.USERNAME_FIELD, *model.REQUIRED_FIELDS)


def save_account(account: ServiceAccount, user: Any) -> None:
    """Save a new account with its new user, which gets no password. The caller has validated both."""
    with transaction.atomic(using=ServiceAccount.objects.all().db):
        user.set_unusable_password()
        user.save()
        account.user = user
        account.save()


def check_account_owner(user_pk: Any) -> None:
    """Raise ValidationError if a user is a service account without an owner, which gets no new tokens."""
    account = ServiceAccount.objects.select_related("owner").filter(user=user_pk).first()
    if account is not None and not account.has_owner:
        message = _("The service account has no active owner, so it gets no new tokens: choose an owner first.")
        raise ValidationError(message, code="owner")
