"""Personal access tokens: for scripts, CI and clients that cannot use OAuth.

A token has the form `mcp_pat_<id>_<secret><checksum>`. The prefix lets scanners for leaked secrets find it. The id
identifies the token on pages. The checksum detects typing errors without a database query. Only the hash is stored. The
secret is random and long, so a salt or a slow hash would not improve its security.
"""

import re
import secrets
import string
import zlib
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Self

from django.core.exceptions import ValidationError
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy

from mcp_django.conf import get_settings
from mcp_django.models.rows import PrimaryManager, create_user_key, hash_text
from mcp_django.models.service_account import check_account_owner

TOKEN_PREFIX = "mcp_pat_"
ID_LENGTH, SECRET_LENGTH, CHECKSUM_LENGTH = 8, 40, 6
DEFAULT_LIFETIME_DAYS = 90
"""Default lifetime of a token in days."""

_ALPHABET = string.digits + string.ascii_letters
_TOKEN_PATTERN = re.compile(
    rf"{TOKEN_PREFIX}[0-9A-Za-z]{{{ID_LENGTH}}}_[0-9A-Za-z]{{{SECRET_LENGTH + CHECKSUM_LENGTH}}}"
)
_SCOPE_PATTERN = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")  # RFC 6749, section 3.3


def generate_random_text(length: int) -> str:
    """Return `length` random letters and digits, 5.95 bits of entropy each."""
    return "".join(secrets.choice(_ALPHABET) for _place in range(length))


def compute_checksum(text: str) -> str:
    """Return the checksum of `text`, which ends a token and detects typing errors."""
    number, digits = zlib.crc32(text.encode()), ""
    for _place in range(CHECKSUM_LENGTH):
        number, digit = divmod(number, len(_ALPHABET))
        digits = _ALPHABET[digit] + digits
    return digits


def check_scopes(scopes: Any) -> None:
    """Raise ValidationError unless `scopes` is a list of scope tokens (RFC 6749, section 3.3)."""
    if not isinstance(scopes, list):
        raise ValidationError(_("Scopes must be a list of words."), code="scopes")
    for scope in scopes:
        if not isinstance(scope, str) or not _SCOPE_PATTERN.fullmatch(scope):
            message = _("%(scope)r is not a scope: a scope is one word without spaces, quotes and backslashes.")
            raise ValidationError(message, code="scopes", params={"scope": scope})


def get_default_days() -> int:
    """Return the default lifetime of a new token in days, at most `MAX_TOKEN_DAYS`."""
    return min(DEFAULT_LIFETIME_DAYS, get_settings().max_token_days or DEFAULT_LIFETIME_DAYS)


def check_expiry(expires: datetime | None) -> None:
    """Raise ValidationError for a new token that would be valid for longer than `MAX_TOKEN_DAYS`."""
    days = get_settings().max_token_days
    if days is None:
        return
    latest = timezone.now() + timedelta(days=days)
    if expires is None or expires > latest:
        message = ngettext_lazy(
            "A token lasts %(days)d day at most: choose a time before %(latest)s.",
            "A token lasts %(days)d days at most: choose a time before %(latest)s.",
            days,
        )
        local = timezone.localtime(latest) if timezone.is_aware(latest) else latest
        raise ValidationError(message, code="lifetime", params={"days": days, "latest": f"{local:%Y-%m-%d %H:%M %Z}"})


class PersonalAccessTokenQuerySet(models.QuerySet["PersonalAccessToken"]):
    """Query set of personal access tokens."""

    def usable(self) -> Self:
        """Return the tokens that are neither revoked nor expired.

        The active state of the user is not checked.
        """
        return self.filter(models.Q(expires_at=None) | models.Q(expires_at__gt=timezone.now()), revoked_at=None)


class PersonalAccessToken(models.Model):
    """Token that lets its bearer act for a user. It is shown once, to its creator."""

    user = create_user_key()
    name = models.CharField(_("name"), max_length=100)
    prefix = models.CharField(_("token"), max_length=len(TOKEN_PREFIX) + ID_LENGTH, editable=False)
    token_hash = models.CharField(_("hash"), max_length=64, unique=True, editable=False)
    scopes = models.JSONField(_("scopes"), default=list, blank=True)
    audience = models.CharField(_("server"), max_length=64, blank=True, default="")
    created = models.DateTimeField(_("created"), default=timezone.now, editable=False)
    expires_at = models.DateTimeField(_("expires"), null=True, blank=True)
    last_used_at = models.DateTimeField(_("last used"), null=True, blank=True, editable=False)
    revoked_at = models.DateTimeField(_("revoked"), null=True, blank=True, editable=False)

    objects = PrimaryManager.from_queryset(PersonalAccessTokenQuerySet)()

    class Meta:
        verbose_name = _("personal access token")
        verbose_name_plural = _("personal access tokens")
        ordering = ["-created", "-pk"]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"

    def clean(self) -> None:
        """Raise ValidationError for wrong scopes, too long a lifetime, and a service account without an owner."""
        check_scopes(self.scopes)
        check_expiry(self.expires_at)
        check_account_owner(self.user_id)

    @classmethod
    def issue(
        cls, *, user: Any, name: str, scopes: Iterable[str] = (), audience: str = "", expires: datetime | None
    ) -> "tuple[PersonalAccessToken, str]":
        """Create a token for `user` and return the row and the token, which is not stored.

        `audience` is the alias of the only server that accepts the token, or "" for all servers. `expires` is a time,
        or None for a token without expiry.

        Raises:
            ValidationError: an invalid scope, a lifetime beyond `MAX_TOKEN_DAYS`, or an account without an owner.
        """
        if isinstance(scopes, str):
            raise TypeError("scopes must be a list of scopes, not one string")
        row = cls(user=user, name=name, scopes=sorted(set(scopes)), audience=audience, expires_at=expires)
        row.clean()
        token = row.generate_token()
        row.save(force_insert=True)
        return row, token

    @classmethod
    def hash(cls, token: str) -> str:
        """Return the value of `token_hash` for a token."""
        return hash_text(token)

    @classmethod
    def is_well_formed(cls, token: str) -> bool:
        """Return True if `token` has the form of a token and a correct checksum.

        The database is not queried.
        """
        if _TOKEN_PATTERN.fullmatch(token) is None:
            return False
        return compute_checksum(token[:-CHECKSUM_LENGTH]) == token[-CHECKSUM_LENGTH:]

    def generate_token(self) -> str:
        """Set a new token on the row and return it. The caller saves the row."""
        self.prefix = TOKEN_PREFIX + generate_random_text(ID_LENGTH)
        body = f"{self.prefix}_{generate_random_text(SECRET_LENGTH)}"
        token = body + compute_checksum(body)
        self.token_hash = self.hash(token)
        return token

    @property
    def is_usable(self) -> bool:
        """Return True if the token is neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or self.expires_at > timezone.now())

    def revoke(self) -> bool:
        """Revoke the token permanently. Return False if it was revoked already.

        Saving sends `post_save`, which invalidates caches.
        """
        if self.revoked_at is not None:
            return False
        self.revoked_at = timezone.now()
        self.save(update_fields=["revoked_at"])
        return True
