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

from mcp_django.auth.external.claims import Said
from mcp_django.conf.issuers import Issuer
from mcp_django.models import ExternalIdentity

logger = logging.getLogger("mcp_django.auth")

ATTEMPTS: Final = 4
FINGERPRINT: Final = 10
"""Number of hexadecimal digits appended to a username that is taken."""


async def find(said: Said, issuer: Issuer) -> Any:
    """Return the linked account, active or not, or None.

    Without a link the settings decide if one is created. One query where a link exists. Raises DatabaseError.
    """
    identity = await _linked().filter(issuer=said.issuer, subject=said.subject).afirst()
    # Compared here too, because some databases ignore case.
    if identity is not None and (identity.issuer, identity.subject) == (said.issuer, said.subject):
        return identity.user
    if identity is not None or not issuer.link:
        return None
    return await _link(said, issuer)


def _linked() -> Any:
    return ExternalIdentity.objects.select_related("user")


def link(said: Said, issuer: Issuer) -> Any:
    """Create the link that the settings allow and return its account, or None.

    Raises DatabaseError.
    """
    for left in reversed(range(ATTEMPTS)):
        try:
            with transaction.atomic(using=router.db_for_write(ExternalIdentity)):
                return _linked_now(said, issuer)
        except (IntegrityError, ValidationError, DataError, OperationalError) as problem:
            # The subject arrived twice at once, or the username was taken in between. Then the link exists, or the next
            # attempt chooses another name. SQLite lets only one of several transactions continue that read before they
            # write.
            identity = _linked().filter(issuer=said.issuer, subject=said.subject).first()
            if identity is not None:
                return identity.user
            if left == 0:
                logger.warning(
                    "Account could not be linked to %s of %s: %s", said.subject, said.issuer, type(problem).__name__
                )
                if isinstance(problem, OperationalError):
                    raise

    return None


def _linked_now(said: Said, issuer: Issuer) -> Any:
    for origin, user in _candidates(said, issuer):
        if user is not None:
            ExternalIdentity.objects.create(issuer=said.issuer, subject=said.subject, user=user, origin=origin)
            logger.info("Linked %s of %s to user %s by %s", said.subject, said.issuer, user.pk, origin)
            return user
    return None


_link = sync_to_async(link, thread_sensitive=True)


def _candidates(said: Said, issuer: Issuer) -> Iterator[tuple[str, Any]]:
    """Yield each link method and its account, in the order of the settings.

    An account is created only when reached.
    """
    for way in issuer.link:
        if way == "create":
            yield way, _create(said)
        else:
            yield way, _unprivileged(_by_email(said) if way == "email" else _by_username(said), said)


def _by_email(said: Said) -> Any:
    model = get_user_model()
    field = _email_field(model)
    if not said.email or field is None:
        return None
    found = [
        user
        for user in model._default_manager.filter(**{f"{field}__iexact": said.email})[:10]
        if _folded(getattr(user, field)) == _folded(said.email)
    ]
    # An address of several accounts identifies none of them.
    return found[0] if len(found) == 1 else None


def _by_username(said: Said) -> Any:
    model = get_user_model()
    if not said.username:
        return None
    user = model._default_manager.filter(**{model.USERNAME_FIELD: said.username}).first()
    return user if user is not None and user.get_username() == said.username else None


def _unprivileged(user: Any, said: Said) -> Any:
    """Return the account if a name is sufficient to link it, else None."""
    if user is None or not user.is_active:
        return None
    if getattr(user, "is_staff", True) or getattr(user, "is_superuser", True):
        logger.warning("Refused to link %s of %s to user %s: a staff account", said.subject, said.issuer, user.pk)
        return None
    if ExternalIdentity.objects.filter(issuer=said.issuer, user=user).exists():
        # The provider has reassigned the name to another subject.
        logger.warning(
            "Refused to link %s of %s to user %s: linked to another subject", said.subject, said.issuer, user.pk
        )
        return None
    return user


def _create(said: Said) -> Any:
    model = get_user_model()
    email = _email_field(model)
    facts = {email: said.email} if email and said.email else {}
    if email != model.USERNAME_FIELD:
        facts[model.USERNAME_FIELD] = _free_name(model, said)

    user = model(**facts)
    user.set_unusable_password()
    user.full_clean(exclude=["password"])
    user.save(force_insert=True)
    return user


def _free_name(model: Any, said: Said) -> str:
    """Return the provider's username if it is valid and free here, else a unique one."""
    field = model._meta.get_field(model.USERNAME_FIELD)
    wanted = model.normalize_username(said.username)
    try:
        field.clean(wanted, None)
    except ValidationError:
        wanted = ""

    if wanted and not model._default_manager.filter(**{f"{field.name}__iexact": wanted}).exists():
        return str(wanted)
    mark = sha256(f"{said.issuer}|{said.subject}".encode()).hexdigest()[:FINGERPRINT]
    return f"{(wanted or 'user')[: (field.max_length or 150) - FINGERPRINT - 1]}-{mark}"


def _email_field(model: Any) -> str | None:
    name = str(model.get_email_field_name())
    try:
        model._meta.get_field(name)
    except FieldDoesNotExist:
        return None
    return name


def _folded(text: Any) -> str:
    """Normalize as Django does for a password reset.

    Look-alike letters stay different.
    """
    return unicodedata.normalize("NFKC", str(text)).casefold()
