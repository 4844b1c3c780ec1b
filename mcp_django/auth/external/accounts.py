"""Account linking: from a subject of an issuer to a local account.

The link (ExternalIdentity) decides. Without one the issuer's settings decide if it is created: to an account with the
same e-mail address or username, but never to staff or a superuser, or to a new account. Usernames of the provider prove
nothing here: a user called "admin" there has no special rights.
"""

import unicodedata
from hashlib import sha256
from typing import Any, Final

from asgiref.sync import sync_to_async
from django.contrib.auth import get_user_model
from django.core.exceptions import FieldDoesNotExist, ValidationError
from django.db import DataError, IntegrityError, OperationalError, router, transaction

from mcp_django.auth.external.claims import TokenClaims
from mcp_django.conf.issuers import IssuerSettings
from mcp_django.models import ExternalIdentity
from mcp_django.protocol.log_text import get_logger

logger = get_logger("mcp_django.auth")

MAX_LINK_ATTEMPTS: Final = 4
FINGERPRINT_HEX_DIGITS: Final = 10
"""Number of hexadecimal digits appended to a username that is taken."""


async def find_user(claims: TokenClaims, issuer: IssuerSettings) -> Any:
    """Return the linked account, active or not, or None.

    Without a link the settings decide if one is created. One query where a link exists. Raises DatabaseError.
    """
    identity = await _select_identities().filter(issuer=claims.issuer, subject=claims.subject).afirst()
    # Compared here too, because some databases ignore case.
    if identity is not None and (identity.issuer, identity.subject) == (claims.issuer, claims.subject):
        return identity.user
    if identity is not None or not issuer.link:
        return None
    return await _link_user_async(claims, issuer)


def _select_identities() -> Any:
    return ExternalIdentity.objects.select_related("user")


def link_user(claims: TokenClaims, issuer: IssuerSettings) -> Any:
    """Create the link that the settings allow and return its account, or None.

    Raises DatabaseError.
    """
    for attempts_left in reversed(range(MAX_LINK_ATTEMPTS)):
        try:
            with transaction.atomic(using=router.db_for_write(ExternalIdentity)):
                return _create_link(claims, issuer)
        except (IntegrityError, ValidationError, DataError, OperationalError) as problem:
            # The subject arrived twice at once, or the username was taken in between. Then the link exists, or the next
            # attempt chooses another name. SQLite lets only one of several transactions continue that read before they
            # write.
            identity = _select_identities().filter(issuer=claims.issuer, subject=claims.subject).first()
            if identity is not None:
                return identity.user
            if attempts_left == 0:
                logger.warning(
                    "Account could not be linked to %s of %s: %s",
                    claims.subject,
                    claims.issuer,
                    type(problem).__name__,
                )
                if isinstance(problem, OperationalError):
                    raise

    return None


def _create_link(claims: TokenClaims, issuer: IssuerSettings) -> Any:
    """Link the first account that a method of the settings finds, in their order, and return it."""
    for method in issuer.link:
        user = _ACCOUNT_FINDERS[method](claims)
        if user is not None and (method == "create" or _is_linkable(user, claims)):
            ExternalIdentity.objects.create(issuer=claims.issuer, subject=claims.subject, user=user, origin=method)
            logger.info("Linked %s of %s to user %s by %s", claims.subject, claims.issuer, user.pk, method)
            return user
    return None


_link_user_async = sync_to_async(link_user, thread_sensitive=True)


def _find_by_email(claims: TokenClaims) -> Any:
    model = get_user_model()
    field = _get_email_field(model)
    if not claims.email or field is None:
        return None
    users = [
        user
        for user in model._default_manager.filter(**{f"{field}__iexact": claims.email})[:10]
        if _fold_case(getattr(user, field)) == _fold_case(claims.email)
    ]
    # An address of several accounts identifies none of them.
    return users[0] if len(users) == 1 else None


def _find_by_username(claims: TokenClaims) -> Any:
    model = get_user_model()
    if not claims.username:
        return None
    user = model._default_manager.filter(**{model.USERNAME_FIELD: claims.username}).first()
    return user if user is not None and user.get_username() == claims.username else None


def _is_linkable(user: Any, claims: TokenClaims) -> bool:
    """Return True if a name is sufficient to link the account."""
    if not user.is_active:
        return False
    if getattr(user, "is_staff", True) or getattr(user, "is_superuser", True):
        reason = "a staff account"
    elif ExternalIdentity.objects.filter(issuer=claims.issuer, user=user).exists():
        reason = "linked to another subject"  # the provider has reassigned the name
    else:
        return True
    logger.warning("Refused to link %s of %s to user %s: %s", claims.subject, claims.issuer, user.pk, reason)
    return False


def _create_user(claims: TokenClaims) -> Any:
    model = get_user_model()
    email = _get_email_field(model)
    values = {email: claims.email} if email and claims.email else {}
    if email != model.USERNAME_FIELD:
        values[model.USERNAME_FIELD] = _choose_username(model, claims)

    user = model(**values)
    user.set_unusable_password()
    user.full_clean(exclude=["password"])
    user.save(force_insert=True)
    return user


_ACCOUNT_FINDERS: Final = {"email": _find_by_email, "username": _find_by_username, "create": _create_user}
"""Account of a subject by method of the settings."""


def _choose_username(model: Any, claims: TokenClaims) -> str:
    """Return the provider's username if it is valid and free here, else a unique one."""
    field = model._meta.get_field(model.USERNAME_FIELD)
    wanted = model.normalize_username(claims.username)
    try:
        field.clean(wanted, None)
    except ValidationError:
        wanted = ""

    if wanted and not model._default_manager.filter(**{f"{field.name}__iexact": wanted}).exists():
        return str(wanted)
    fingerprint = sha256(f"{claims.issuer}|{claims.subject}".encode()).hexdigest()[:FINGERPRINT_HEX_DIGITS]
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
