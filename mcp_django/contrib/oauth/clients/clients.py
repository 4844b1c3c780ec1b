"""Creation of client rows: an application of django-oauth-toolkit with a profile.

Clients that register themselves or are described by a document are public or hold a secret of their own. They use the
authorization code grant only. They belong to no user, even if a user was logged in during the registration.
"""

from collections.abc import Sequence
from ipaddress import ip_address
from typing import Any

from django.core.exceptions import ValidationError
from django.db import IntegrityError, router, transaction
from django.utils import timezone

from mcp_django.contrib.oauth.clients import expiry
from mcp_django.contrib.oauth.clients.client_metadata import DEFAULT_CLIENT_NAME, ClientMetadata, ClientMetadataRefused
from mcp_django.contrib.oauth.models import ClientProfile
from mcp_django.contrib.oauth.options import get_settings
from mcp_django.contrib.oauth.tokens.credentials import hash_secret
from mcp_django.contrib.oauth.toolkit_compat import get_application_model


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
        expiry.delete_abandoned()
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

    model = get_application_model()
    with transaction.atomic(using=router.db_for_write(model)):
        application, secret = _build_application(metadata, model.RegistrationSource.DCR)
        _validate(application)
        application.save()
        ClientProfile.objects.create(
            application=application,
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

    with transaction.atomic(using=router.db_for_write(model)):
        application, secret = _build_application(metadata, model.RegistrationSource.MANUAL)
        if not redirect_uris:
            application.authorization_grant_type = model.GRANT_CLIENT_CREDENTIALS
        _validate(application)
        application.save()
        ClientProfile.objects.create(
            application=application,
            source=ClientProfile.Source.MANUAL,
            approved=True,
            trusted=service_user is not None,
            service_user=service_user,
            allowed_scopes=None if scopes is None else sorted(set(scopes)),
            allowed_resources=None if resources is None else sorted(set(resources)),
        )
    return application, secret


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
    return {
        "application_type": metadata.application_type,
        "client_uri": metadata.client_uri,
        "logo_uri": metadata.logo_uri,
        "policy_uri": metadata.policy_uri,
        "tos_uri": metadata.tos_uri,
        "requested_grants": list(metadata.requested_grants),
    }


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
