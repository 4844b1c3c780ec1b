"""Personal access tokens: for scripts, CI and clients that cannot do OAuth.

A token reads `mcp_pat_<id>_<secret><checksum>`. By its beginning scanners for leaked secrets find it, the id is what
people see of it afterwards, and the checksum tells it from a typing error without asking the database. Only its hash is
stored; the secret is random and long, so that salt and stretching would add nothing.
"""

import hashlib
import re
import secrets
import string
import zlib
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Self

from django.core.exceptions import ValidationError
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from mcp_django.conf import user_model_name
from mcp_django.models.managers import PrimaryManager

MARK = "mcp_pat_"
ID_LENGTH, SECRET_LENGTH, CHECKSUM_LENGTH = 8, 40, 6
DEFAULT_DAYS = 90
"""How long a token lasts unless its maker says otherwise."""

_ALPHABET = string.digits + string.ascii_letters
_SHAPE = re.compile(rf"{MARK}[0-9A-Za-z]{{{ID_LENGTH}}}_[0-9A-Za-z]{{{SECRET_LENGTH + CHECKSUM_LENGTH}}}")
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")  # RFC 6749, section 3.3


def random_text(length: int) -> str:
    """So many letters and digits that nobody can guess, 5.95 bits in each."""
    return "".join(secrets.choice(_ALPHABET) for _place in range(length))


def checksum(text: str) -> str:
    """What stands behind the secret of a token, so that a typing error is known without asking the database."""
    number, digits = zlib.crc32(text.encode()), ""
    for _place in range(CHECKSUM_LENGTH):
        number, digit = divmod(number, len(_ALPHABET))
        digits = _ALPHABET[digit] + digits
    return digits


def check_scopes(scopes: Any) -> None:
    """Raise ValidationError unless `scopes` is a list of scope tokens (RFC 6749, section 3.3)."""
    if not isinstance(scopes, list):
        raise ValidationError(_("Scopes are a list of words."), code="scopes")
    for scope in scopes:
        if not isinstance(scope, str) or not _SCOPE.fullmatch(scope):
            message = _("%(scope)r is not a scope: a scope is one word without spaces, quotes and backslashes.")
            raise ValidationError(message, code="scopes", params={"scope": scope})


class PersonalAccessTokenQuerySet(models.QuerySet["PersonalAccessToken"]):
    """Sets of tokens."""

    def usable(self) -> Self:
        """Neither revoked nor expired. Whether the user is active is another question."""
        return self.filter(models.Q(expires_at=None) | models.Q(expires_at__gt=timezone.now()), revoked_at=None)


class PersonalAccessToken(models.Model):
    """What its bearer may do in a user's name. The token itself is shown once, to the one who makes it."""

    user: "models.ForeignKey[Any, Any]" = models.ForeignKey(
        user_model_name(), verbose_name=_("user"), on_delete=models.CASCADE, related_name="+"
    )
    name = models.CharField(_("name"), max_length=100, help_text=_("What it is for, such as “CI of the shop”."))
    prefix = models.CharField(_("token"), max_length=len(MARK) + ID_LENGTH, editable=False)
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

    @classmethod
    def issue(
        cls, *, user: Any, name: str, scopes: Iterable[str] = (), audience: str = "", expires: datetime | None
    ) -> "tuple[PersonalAccessToken, str]":
        """Make a token for `user`, and return the row and the token, which is not known afterwards.

        `audience` is the alias of the only server it is for, or "" for every one; `expires` is a moment, or None for
        never. Raises ValidationError for a scope that is none.
        """
        if isinstance(scopes, str):
            raise TypeError("scopes is a list of scopes, not one string")
        row = cls(user=user, name=name, scopes=sorted(set(scopes)), audience=audience, expires_at=expires)
        check_scopes(row.scopes)
        token = row.mint()
        row.save(force_insert=True)
        return row, token

    @classmethod
    def hash(cls, token: str) -> str:
        """What `token_hash` holds for a token: look it up by this."""
        return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()

    @classmethod
    def is_well_formed(cls, token: str) -> bool:
        """Can this be a personal access token? Its checksum holds; whether it exists is another question."""
        if _SHAPE.fullmatch(token) is None:
            return False
        return checksum(token[:-CHECKSUM_LENGTH]) == token[-CHECKSUM_LENGTH:]

    def mint(self) -> str:
        """Give the row a new token and return it: the only time it is known here. Saving is the caller's."""
        self.prefix = MARK + random_text(ID_LENGTH)
        body = f"{self.prefix}_{random_text(SECRET_LENGTH)}"
        token = body + checksum(body)
        self.token_hash = self.hash(token)
        return token

    @property
    def is_usable(self) -> bool:
        """Is it neither revoked nor expired?"""
        return self.revoked_at is None and (self.expires_at is None or self.expires_at > timezone.now())

    def revoke(self) -> bool:
        """End it for good. False when it was revoked before. Sends `post_save`, by which caches forget it."""
        if self.revoked_at is not None:
            return False
        self.revoked_at = timezone.now()
        self.save(update_fields=["revoked_at"])
        return True
