"""Client rows: an application of django-oauth-toolkit with a profile.

They are created here, and deleted when unused.

Clients that register themselves or are described by a document are public or hold a secret of their own. They use the
authorization code grant only. They belong to no user, even if a user was logged in during the registration.

Without the deletion of unused ones, strangers could fill the database. A client described by a document is created
again by its next request. Clients with a valid token or code are kept. Clients that an operator approved, trusted,
blocked or pinned are kept too: a blocked client would return unblocked.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import Any

from django.core.exceptions import ValidationError
from django.db import IntegrityError, models, router, transaction
from django.db.models import Exists, OuterRef, Q
from django.utils import timezone

from mcp_django.contrib.oauth.clients.client_metadata import DEFAULT_CLIENT_NAME, ClientMetadata, ClientMetadataRefused
from mcp_django.contrib.oauth.models import ClientProfile
from mcp_django.contrib.oauth.options import get_settings
from mcp_django.contrib.oauth.tokens.credentials import hash_secret
from mcp_django.contrib.oauth.toolkit_compat import (
    get_access_token_model,
    get_application_model,
    get_grant_model,
    get_refresh_token_model,
)

ABANDONED_AFTER = timedelta(hours=1)
"""Age after which an unused self-registered client is deleted if the limit is reached."""
_MAX_ABANDONED_DELETIONS = 100
"""Maximum number of abandoned clients deleted at once, because a request waits for it."""


class TooManyClients(Exception):
    """Error: the limit of unapproved clients is reached."""


def ensure_capacity() -> None:
    """Ensure that one more unapproved client is allowed.

    If the limit is reached, abandoned registrations are deleted first. The limit is not exact: concurrent requests may
    use the same free place.

    Raises:
        TooManyClients: the limit is reached.
    """
    limit = get_settings().most_clients
    if _count_unapproved() >= limit:
        delete_abandoned()
        if _count_unapproved() >= limit:
            raise TooManyClients


def register_client(metadata: ClientMetadata, *, address: str | None) -> tuple[Any, str]:
    """Create a self-registered client and return the application and its secret.

    The secret is "" for a public client. `address` is the address of the request.

    Raises:
        TooManyClients: the limit of unapproved clients is reached.
        ClientMetadataRefused: the toolkit rejects the metadata.
    """
    ensure_capacity()

    application, secret = _build_application(metadata, get_application_model().RegistrationSource.DCR)
    _insert(
        application,
        source=ClientProfile.Source.REGISTERED,
        created_ip=_parse_address(address),
        **_build_profile_fields(metadata),
    )
    return application, secret


def save_document_client(url: str, metadata: ClientMetadata, *, digest: str, expires: Any, pinned: bool = False) -> Any:
    """Save the content of the document at `url` as a client and return the application.

    `expires` is the time of the next fetch, or None for never. An existing client of this id that does not come from a
    document is returned unchanged.

    Raises:
        ClientMetadataRefused: the toolkit rejects the metadata.
        TooManyClients: the client is new and the limit is reached.
    """
    model = get_application_model()
    using = router.db_for_write(model)
    application = model._base_manager.using(using).filter(client_id=url).first()

    if application is None:
        if not pinned:
            ensure_capacity()
        application, _ = _build_application(metadata, model.RegistrationSource.CIMD)
        application.client_id = url
    elif application.registration_source != model.RegistrationSource.CIMD:
        return application

    application.name, application.redirect_uris = metadata.name, " ".join(metadata.redirect_uris)
    application.cimd_expires_at = expires
    _validate(application)

    profile_fields = {
        "source": ClientProfile.Source.DOCUMENT,
        "document_url": url,
        "document_hash": digest,
        "document_fetched": timezone.now(),
        **_build_profile_fields(metadata),
    }

    try:
        with transaction.atomic(using=using):
            application.save(using=using)
            ClientProfile.objects.update_or_create(application=application, defaults=profile_fields)
    except IntegrityError:
        # Another process saved the same document first.
        return model._base_manager.using(using).get(client_id=url)
    return application


def create_client(
    name: str,
    *,
    redirect_uris: Sequence[str] = (),
    confidential: bool = False,
    service_user: Any = None,
    scopes: Sequence[str] | None = None,
    resources: Sequence[str] | None = None,
) -> tuple[Any, str]:
    """Create a client for an operator and return the application and its secret.

    The secret is "" for a public client. With redirect URIs, the client requests the consent of users. Without them, it
    is confidential, acts for `service_user` if given, and may introspect tokens.

    Raises:
        ClientMetadataRefused: the toolkit rejects the metadata.
    """
    model = get_application_model()
    metadata = ClientMetadata(
        name=name or DEFAULT_CLIENT_NAME,
        redirect_uris=tuple(redirect_uris),
        auth_method="client_secret_basic" if confidential or not redirect_uris else "none",
    )

    application, secret = _build_application(metadata, model.RegistrationSource.MANUAL)
    if not redirect_uris:
        application.authorization_grant_type = model.GRANT_CLIENT_CREDENTIALS
    _insert(
        application,
        source=ClientProfile.Source.MANUAL,
        approved=True,
        trusted=service_user is not None,
        service_user=service_user,
        allowed_scopes=None if scopes is None else sorted(set(scopes)),
        allowed_resources=None if resources is None else sorted(set(resources)),
    )
    return application, secret


def _insert(application: Any, **profile_fields: Any) -> None:
    _validate(application)
    with transaction.atomic(using=router.db_for_write(get_application_model())):
        application.save()
        ClientProfile.objects.create(application=application, **profile_fields)


def _build_application(metadata: ClientMetadata, source: str) -> tuple[Any, str]:
    model = get_application_model()
    application = model(
        user=None,
        name=metadata.name,
        redirect_uris=" ".join(metadata.redirect_uris),
        client_type=model.CLIENT_PUBLIC if metadata.is_public else model.CLIENT_CONFIDENTIAL,
        authorization_grant_type=model.GRANT_AUTHORIZATION_CODE,
        registration_source=source,
        skip_authorization=False,
    )

    secret = application.client_secret
    application.client_secret, application.hash_client_secret = hash_secret(secret), False
    return application, "" if metadata.is_public else secret


def _build_profile_fields(metadata: ClientMetadata) -> dict[str, Any]:
    names = ("application_type", "client_uri", "logo_uri", "policy_uri", "tos_uri")
    return {name: getattr(metadata, name) for name in names} | {"requested_grants": list(metadata.requested_grants)}


def _validate(application: Any) -> None:
    try:
        # A database constraint makes ids unique and decides between concurrent inserts.
        application.full_clean(exclude=["client_secret"], validate_unique=False)
    except ValidationError as problem:
        if "redirect_uris" in problem.message_dict:
            raise ClientMetadataRefused(
                "a redirect URI is not supported by this server", "invalid_redirect_uri"
            ) from problem
        raise ClientMetadataRefused("the metadata is not supported by this server") from problem


def _count_unapproved() -> int:
    return ClientProfile.objects.self_registered().count()


def _parse_address(text: str | None) -> str | None:
    """Return a single address for the column; of a network, its first address."""
    try:
        return str(ip_address((text or "").partition("/")[0]))
    except ValueError:
        return None


def delete_unused(*, days: float | None = None, dry_run: bool = False) -> int:
    """Delete the clients not used for `days` days, and return their number.

    The default is `unused_days` of the settings. With `dry_run` they are only counted.
    """
    before = timezone.now() - timedelta(days=get_settings().unused_days if days is None else days)
    return _delete(_find_unused(before), dry_run=dry_run)


def delete_abandoned() -> int:
    """Delete the oldest clients that registered a while ago and were never used.

    Returns:
        The number of deleted clients, which is limited.
    """
    never_used = _find_unused(timezone.now() - ABANDONED_AFTER).filter(last_used=None)
    for model in (get_access_token_model(), get_refresh_token_model()):
        never_used = never_used.exclude(Exists(_filter_by_client(model)))
    return _delete(never_used, limit=_MAX_ABANDONED_DELETIONS)


def _find_unused(before: datetime) -> models.QuerySet[ClientProfile]:
    now = timezone.now()
    refreshed = now - timedelta(seconds=get_settings().refresh_token)

    usable_tokens = (
        Exists(_filter_by_client(get_access_token_model()).filter(expires__gt=now)),
        Exists(_filter_by_client(get_refresh_token_model()).filter(revoked=None, created__gt=refreshed)),
        Exists(_filter_by_client(get_grant_model()).filter(expires__gt=now)),
    )

    protected = Q(blocked=True) | Q(trusted=True)
    pinned = Q(source=ClientProfile.Source.DOCUMENT, application__cimd_expires_at=None)
    profiles = ClientProfile.objects.self_registered().filter(created__lt=before).exclude(protected).exclude(pinned)
    profiles = profiles.filter(Q(last_used=None) | Q(last_used__lt=before))
    for tokens in usable_tokens:
        profiles = profiles.exclude(tokens)
    return profiles


def _filter_by_client(model: Any) -> Any:
    return model._base_manager.filter(application=OuterRef("application"))


def _delete(unused: models.QuerySet[ClientProfile], *, dry_run: bool = False, limit: int | None = None) -> int:
    model = get_application_model()
    using = router.db_for_write(model)
    keys = list(unused.order_by("created", "pk").values_list("application_id", flat=True)[:limit])
    if dry_run:
        return len(keys)

    deleted = 0
    for key in keys:
        with transaction.atomic(using=using):
            # Token creation takes the same lock. If it came first, the client is in use and is kept.
            locked = model._base_manager.using(using).select_for_update(of=("self",)).filter(pk=key).first()
            if locked is not None and unused.filter(application_id=key).exists():
                locked.delete()
                deleted += 1
    return deleted
