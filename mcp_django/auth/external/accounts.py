"""Account linking: from a subject of an issuer to a local account.

The link (ExternalIdentity) decides. Without one the issuer's settings decide if it is created: to an account with the
same e-mail address or username, but never to staff or a superuser, or to a new account. Usernames of the provider prove
nothing here: a user called "admin" there has no special rights.
"""

import logging
import unicodedata
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Final

from asgiref.sync import sync_to_async
from django.contrib.auth import get_user_model
from django.core.exceptions import FieldDoesNotExist, ValidationError
from django.db import DataError, IntegrityError, OperationalError, router, transaction

from mcp_django.auth.external.claims import TokenClaims
from mcp_django.conf.issuers import IssuerSettings
from mcp_django.models import ExternalIdentity

logger = logging.getLogger("mcp_django.auth")

MAX_LINK_ATTEMPTS: Final = 4
FINGERPRINT_HEX_DIGITS: Final = 10
"""Number of hexadecimal digits appended to a username that is taken."""


async def find_user(token_claims: TokenClaims, issuer: IssuerSettings) -> Any:
    """Return the linked account, active or not, or None.

    Without a link the settings decide if one is created. One query where a link exists. Raises DatabaseError.
    """
    identity = await _select_identities().filter(issuer=token_claims.issuer, subject=token_claims.subject).afirst()
    # Compared here too, because some databases ignore case.
    if identity is not None and (identity.issuer, identity.subject) == (token_claims.issuer, token_claims.subject):
        return identity.user
    if identity is not None or not issuer.link:
        return None
    return await _link_user_async(token_claims, issuer)


def _select_identities() -> Any:
    return ExternalIdentity.objects.select_related("user")


def link_user(token_claims: TokenClaims, issuer: IssuerSettings) -> Any:
    """Create the link that the settings allow and return its account, or None.

    Raises DatabaseError.
    """
    for attempts_left in reversed(range(MAX_LINK_ATTEMPTS)):
        try:
            with transaction.atomic(using=router.db_for_write(ExternalIdentity)):
                return _create_link(token_claims, issuer)
        except (IntegrityError, ValidationError, DataError, OperationalError) as problem:
            # The subject arrived twice at once, or the username was taken in between. Then the link exists, or the next
            # attempt chooses another name. SQLite lets only one of several transactions continue that read before they
            # write.
            identity = _select_identities().filter(issuer=token_claims.issuer, subject=token_claims.subject).first()
            if identity is not None:
                return identity.user
            if attempts_left == 0:
                logger.warning(
                    "Account could not be linked to %s of %s: %s",
                    token_claims.subject,
                    token_claims.issuer,
                    type(problem).__name__,
                )
                if isinstance(problem, OperationalError):
                    raise

    return None


def _create_link(token_claims: TokenClaims, issuer: IssuerSettings) -> Any:
    for origin, user in _iter_candidates(token_claims, issuer):
        if user is not None:
            ExternalIdentity.objects.create(
                issuer=token_claims.issuer, subject=token_claims.subject, user=user, origin=origin
            )
            logger.info("Linked %s of %s to user %s by %s", token_claims.subject, token_claims.issuer, user.pk, origin)
            return user
    return None


_link_user_async = sync_to_async(link_user, thread_sensitive=True)


def _iter_candidates(token_claims: TokenClaims, issuer: IssuerSettings) -> Iterator[tuple[str, Any]]:
    """Yield each link method and its account, in the order of the settings.

    An account is created only when reached.
    """
    for method in issuer.link:
        if method == "create":
            yield method, _create_user(token_claims)
        else:
            yield (
                method,
                _check_linkable(
                    _find_by_email(token_claims) if method == "email" else _find_by_username(token_claims), token_claims
                ),
            )


def _find_by_email(token_claims: TokenClaims) -> Any:
    model = get_user_model()
    field = _get_email_field(model)
    if not token_claims.email or field is None:
        return None
    users = [
        user
        for user in model._default_manager.filter(**{f"{field}__iexact": token_claims.email})[:10]
        if _fold_case(getattr(user, field)) == _fold_case(token_claims.email)
    ]
    # An address of several accounts identifies none of them.
    return users[0] if len(users) == 1 else None


def _find_by_username(token_claims: TokenClaims) -> Any:
    model = get_user_model()
    if not token_claims.username:
        return None
    user = model._default_manager.filter(**{model.USERNAME_FIELD: token_claims.username}).first()
    return user if user is not None and user.get_username() == token_claims.username else None


def _check_linkable(user: Any, token_claims: TokenClaims) -> Any:
    """Return the account if a name is sufficient to link it, else None."""
    if user is None or not user.is_active:
        return None
    if getattr(user, "is_staff", True) or getattr(user, "is_superuser", True):
        logger.warning(
            "Refused to link %s of %s to user %s: a staff account", token_claims.subject, token_claims.issuer, user.pk
        )
        return None
    if ExternalIdentity.objects.filter(issuer=token_claims.issuer, user=user).exists():
        # The provider has reassigned the name to another subject.
        logger.warning(
            "Refused to link %s of %s to user %s: linked to another subject",
            token_claims.subject,
            token_claims.issuer,
            user.pk,
        )
        return None
    return user


def _create_user(token_claims: TokenClaims) -> Any:
    model = get_user_model()
    email = _get_email_field(model)
    values = {email: token_claims.email} if email and token_claims.email else {}
    if email != model.USERNAME_FIELD:
        values[model.USERNAME_FIELD] = _choose_username(model, token_claims)

    user = model(**values)
    user.set_unusable_password()
    user.full_clean(exclude=["password"])
    user.save(force_insert=True)
    return user


def _choose_username(model: Any, token_claims: TokenClaims) -> str:
    """Return the provider's username if it is valid and free here, else a unique one."""
    field = model._meta.get_field(model.USERNAME_FIELD)
    wanted = model.normalize_username(token_claims.username)
    try:
        field.clean(wanted, None)
    except ValidationError:
        wanted = ""

    if wanted and not model._default_manager.filter(**{f"{field.name}__iexact": wanted}).exists():
        return str(wanted)
    fingerprint = sha256(f"{token_claims.issuer}|{token_claims.subject}".encode()).hexdigest()[:FINGERPRINT_HEX_DIGITS]
    return f"{(wanted or 'user')[: (field.max_length or 150) - FINGERPRINT_HEX_DIGITS - 1]}-{fingerprint}"


def _get_email_field(model: Any) -> str | None:
    name = str(model.get_email_field_name())
    try:
        model._meta.get_field(name)
    except FieldDoesNotExist:
        return None
    return name


def _fold_case(text: Any) -> str:
    """Normalize as Django does for a password reset.

    Look-alike letters stay different.
    """
    return unicodedata.normalize("NFKC", str(text)).casefold()
