"""From a subject of an issuer to an account here.

What counts is the link (ExternalIdentity). Where there is none yet, the issuer's settings say whether one is made: to
an account of the same e-mail address or username, never to one of staff or of a superuser, or to a new account. Names
at the provider are the provider's; that somebody is called "admin" there says nothing.
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
"""Hexadecimal digits that tell a new account from one whose name is taken."""


async def find(said: Said, issuer: Issuer) -> Any:
    """The account, active or not; None when there is none and none may be made. One query where it is linked.

    Raises DatabaseError.
    """
    identity = await _linked().filter(issuer=said.issuer, subject=said.subject).afirst()
    # Compared here too: there are databases that take small letters for capitals.
    if identity is not None and (identity.issuer, identity.subject) == (said.issuer, said.subject):
        return identity.user
    if identity is not None or not issuer.link:
        return None
    return await _link(said, issuer)


def _linked() -> Any:
    return ExternalIdentity.objects.select_related("user")


def link(said: Said, issuer: Issuer) -> Any:
    """Make the link that the settings allow, and return the account; None when there is none. Raises DatabaseError."""
    for left in reversed(range(ATTEMPTS)):
        try:
            with transaction.atomic(using=router.db_for_write(ExternalIdentity)):
                return _linked_now(said, issuer)
        except (IntegrityError, ValidationError, DataError, OperationalError) as problem:
            # The same subject came twice at once, or a name was taken meanwhile: then the row is there, or the next
            # attempt finds another name. SQLite lets only one of those who read before they write go on.
            identity = _linked().filter(issuer=said.issuer, subject=said.subject).first()
            if identity is not None:
                return identity.user
            if left == 0:
                logger.warning("No account for %s of %s: %s", said.subject, said.issuer, type(problem).__name__)
                if isinstance(problem, OperationalError):
                    raise
    return None


def _linked_now(said: Said, issuer: Issuer) -> Any:
    for origin, user in _candidates(said, issuer):
        if user is not None:
            ExternalIdentity.objects.create(issuer=said.issuer, subject=said.subject, user=user, origin=origin)
            logger.info("%s of %s is user %s from now on, by %s", said.subject, said.issuer, user.pk, origin)
            return user
    return None


_link = sync_to_async(link, thread_sensitive=True)


def _candidates(said: Said, issuer: Issuer) -> Iterator[tuple[str, Any]]:
    """What each of the ways leads to, in the order of the settings; a new account is made only when it is asked for."""
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
    # Where two have it, it is neither's.
    return found[0] if len(found) == 1 else None


def _by_username(said: Said) -> Any:
    model = get_user_model()
    if not said.username:
        return None
    user = model._default_manager.filter(**{model.USERNAME_FIELD: said.username}).first()
    return user if user is not None and user.get_username() == said.username else None


def _unprivileged(user: Any, said: Said) -> Any:
    """The account, if a name is enough to link it."""
    if user is None or not user.is_active:
        return None
    if getattr(user, "is_staff", True) or getattr(user, "is_superuser", True):
        logger.warning("%s of %s is not linked to user %s, who is staff", said.subject, said.issuer, user.pk)
        return None
    if ExternalIdentity.objects.filter(issuer=said.issuer, user=user).exists():
        # The provider gave the name to somebody else.
        logger.warning("%s of %s is not linked to user %s, who is another", said.subject, said.issuer, user.pk)
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
    """The name at the provider where it can be had here, else one that is nobody's."""
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
    """As Django compares addresses for a password reset: letters that only look alike are not the same."""
    return unicodedata.normalize("NFKC", str(text)).casefold()
