"""Validation of requests for codes and tokens, as called by oauthlib.

Hooks that are not overridden here are the toolkit's.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from django.db import router, transaction
from django.db.models import Q
from django.utils import timezone
from oauthlib.oauth2.rfc6749 import errors

from mcp_django.contrib.oauth import redirects
from mcp_django.contrib.oauth.flows import refresh_rotation, revocation
from mcp_django.contrib.oauth.models import ClientProfile, Consent, TokenFamily
from mcp_django.contrib.oauth.options import get_settings
from mcp_django.contrib.oauth.tokens import access_tokens, credentials, resource_indicators, scopes
from mcp_django.contrib.oauth.tokens.token_format import digest
from mcp_django.contrib.oauth.toolkit_compat import (
    BaseValidator,
    get_access_token_model,
    get_application_model,
    get_grant_model,
    get_primary_queryset,
    set_token,
)

LAST_USED_INTERVAL: Final = timedelta(hours=1)
"""Minimum time between two updates of a client's last use."""


class Validator(BaseValidator):
    """Validator for oauthlib.

    It requires PKCE with S256, an audience for each token, and active users and clients. It accepts each code and
    refresh token once.
    """

    # Clients

    def load_client(self, client_id: Any, request: Any) -> Any:
        """Load a usable client.

        Documents are not fetched here, because the token endpoint calls this before authentication.
        """
        loaded = request.client
        if loaded is None or getattr(loaded, "client_id", None) != client_id:
            loaded = credentials.find_application(client_id)
        request.client = loaded if loaded is not None and loaded.is_usable(request) else None
        return request.client

    def client_authentication_required(self, request: Any, *args: Any, **kwargs: Any) -> bool:
        """Return True for confidential clients and for clients that present a secret.

        A public client with a wrong secret is not trusted either.
        """
        shown = _read_credentials(request)
        if shown is None or shown.secret is not None:
            return True
        client = self.load_client(shown.client_id, request)
        return client is None or credentials.is_confidential(client)

    def authenticate_client(self, request: Any, *args: Any, **kwargs: Any) -> bool:
        shown = _read_credentials(request)
        client = credentials.authenticate(shown)
        if shown is None or client is None or not client.is_usable(request):
            return False
        request.client, request.client_id = client, shown.client_id
        return True

    def validate_grant_type(
        self, client_id: str, grant_type: str, client: Any, request: Any, *args: Any, **kwargs: Any
    ) -> bool:
        model = get_application_model()
        if grant_type == "client_credentials":
            return client.authorization_grant_type == model.GRANT_CLIENT_CREDENTIALS and _is_trusted(client)
        code = client.authorization_grant_type == model.GRANT_AUTHORIZATION_CODE
        return code and grant_type in ("authorization_code", "refresh_token")

    # Scopes

    def validate_scopes(
        self, client_id: str, wanted: list[str], client: Any, request: Any, *args: Any, **kwargs: Any
    ) -> bool:
        """Drop scopes that are not offered (RFC 6749, section 3.3).

        Clients add `offline_access` and similar scopes by themselves. The response lists the granted scopes. A request
        without any offered scope is an error.
        """
        offered = scopes.get_offered_scopes(client, user=_get_acting_user(client, request))
        kept = [scope for scope in dict.fromkeys(wanted) if scope in offered]
        request.scopes = kept
        wanted[:] = kept
        return bool(kept)

    def get_default_scopes(self, client_id: str, request: Any, *args: Any, **kwargs: Any) -> list[str]:
        return scopes.get_default_scopes()

    def get_original_scopes(self, refresh_token: str, request: Any, *args: Any, **kwargs: Any) -> list[str]:
        """Return the consented scopes that client and user may still have."""
        row = request.refresh_token_instance
        # A token without its access token was rejected before.
        return scopes.filter_offered_scopes(row.access_token.scope, request.client, user=row.user)

    def is_within_original_scope(
        self, request_scopes: list[str], refresh_token: str, request: Any, *args: Any, **kwargs: Any
    ) -> bool:
        """Return True if all known scopes are within the original ones.

        Unknown scopes were dropped at the consent and are dropped again.
        """
        original = self.get_original_scopes(refresh_token, request)
        known = scopes.get_declared_scopes()
        request.scopes = [scope for scope in request_scopes if scope in original]
        return bool(request.scopes) and all(scope in original or scope not in known for scope in request_scopes)

    # Codes

    def validate_redirect_uri(self, client_id: str, redirect_uri: str, request: Any, *args: Any, **kwargs: Any) -> bool:
        """Return True for a registered redirect URI. The port of loopback URIs may differ."""
        client = request.client
        if not redirects.is_well_formed(redirect_uri):
            return False
        # The toolkit compares hosts without case and ports as numbers; models of projects may refuse more.
        is_registered = redirects.is_registered(redirect_uri, client.redirect_uris.split())
        return is_registered and bool(client.redirect_uri_allowed(redirect_uri))

    def is_pkce_required(self, client_id: str, request: Any) -> bool:
        return True

    def save_authorization_code(
        self, client_id: str, code: dict[str, str], request: Any, *args: Any, **kwargs: Any
    ) -> None:
        """Save a code as a hash.

        Raises:
            OAuth2Error: an error for the redirect.
        """
        if request.code_challenge_method != "S256" or not request.code_challenge:
            raise errors.UnsupportedCodeChallengeMethodError(request=request)
        if request.user is None or not request.user.is_active or not request.scopes:
            raise errors.AccessDeniedError(request=request)
        get_primary_queryset(get_grant_model()).create(
            application=request.client,
            user=request.user,
            code=digest(code["code"]),
            expires=timezone.now() + timedelta(seconds=get_settings().code),
            redirect_uri=request.redirect_uri,
            scope=" ".join(request.scopes),
            code_challenge=request.code_challenge,
            code_challenge_method=request.code_challenge_method,
            claims="{}",
            resource=self._resolve_resources(request, _get_requested_resources(request)),
        )

    def validate_code(self, client_id: str, code: str, client: Any, request: Any, *args: Any, **kwargs: Any) -> bool:
        rows = get_primary_queryset(get_grant_model()).filter(code=digest(code), application=client)
        grant = rows.select_related("user").first()
        if grant is None:
            revocation.revoke_if_used(code, client)
            return False
        if grant.is_expired() or not grant.user.is_active:
            return False
        # The row is read once: a concurrent exchange could delete it between two reads.
        request.mcp_grant = grant
        request.scopes, request.user = scopes.filter_offered_scopes(grant.scope, client, user=grant.user), grant.user
        return True

    def get_code_challenge(self, code: str, request: Any) -> str | None:
        return request.mcp_grant.code_challenge or None

    def get_code_challenge_method(self, code: str, request: Any) -> str | None:
        return request.mcp_grant.code_challenge_method or None

    def confirm_redirect_uri(
        self, client_id: str, code: str, redirect_uri: str, client: Any, request: Any, *args: Any, **kwargs: Any
    ) -> bool:
        return bool(request.mcp_grant.redirect_uri_allowed(redirect_uri))

    def invalidate_authorization_code(self, client_id: str, code: str, request: Any, *args: Any, **kwargs: Any) -> None:
        """Skip the deletion: the code was deleted with the creation of its tokens."""

    # Refresh

    def validate_refresh_token(self, refresh_token: str, client: Any, request: Any, *args: Any, **kwargs: Any) -> bool:
        """Validate a refresh token as far as one read allows.

        Concurrent use is detected when the tokens are created.
        """
        row = refresh_rotation.find_refresh_token(refresh_token)
        if row is None or row.application_id != client.pk:
            return False
        if row.user is None or not row.user.is_active or refresh_rotation.is_idle(row):
            return False

        if refresh_rotation.is_replayed(row) or _is_withdrawn(row):
            revocation.revoke_family(row.token_family)
            return False
        if row.access_token is None:
            return False  # revoked just now

        request.user, request.refresh_token, request.refresh_token_instance = row.user, refresh_token, row
        return True

    # Tokens

    def save_bearer_token(self, token: dict[str, Any], request: Any, *args: Any, **kwargs: Any) -> None:
        """Create the rows of the tokens in one transaction.

        Raises:
            OAuth2Error: the grant cannot be used.
        """
        create_token = _TOKEN_CREATORS.get(request.grant_type)
        if create_token is None or not request.scopes:
            raise errors.InvalidScopeError(request=request)
        with transaction.atomic(using=router.db_for_write(get_access_token_model())):
            access_token = create_token(self, token, request)
        if access_token is None:
            if request.grant_type == "authorization_code":
                revocation.revoke_if_used(request.code, request.client)
            raise errors.InvalidGrantError(request=request)

    def _create_from_code(self, token: dict[str, Any], request: Any) -> Any:
        grant = request.mcp_grant
        resources = self._narrow_resources(request, grant.resource)
        used = revocation.claim_code(request.code, request.client)
        if used is None or not get_primary_queryset(get_grant_model()).filter(pk=grant.pk).delete()[0]:
            return None
        family = TokenFamily.objects.create(user=request.user, application=request.client).pk
        access = _save_access_token(token, request, resources)
        refresh_rotation.save_refresh_token(token["refresh_token"], access_token=access, family=family, generation=0)
        revocation.record_tokens(used, family=family, access_token=token["access_token"])
        return access

    def _create_from_refresh(self, token: dict[str, Any], request: Any) -> Any:
        row = request.refresh_token_instance
        family: UUID = row.token_family
        resources = self._narrow_resources(request, row.resource)
        generation = refresh_rotation.claim_rotation(row)
        if generation is None:
            revocation.revoke_family(family)
            return None
        access = _save_access_token(token, request, resources)
        refresh_rotation.save_refresh_token(
            token["refresh_token"], access_token=access, family=family, generation=generation
        )
        return access

    def _create_from_credentials(self, token: dict[str, Any], request: Any) -> Any:
        request.user = request.client.mcp_profile.service_user
        return _save_access_token(token, request, self._resolve_resources(request, _get_requested_resources(request)))

    def _resolve_resources(self, request: Any, requested: Iterable[Any]) -> list[str]:
        try:
            return resource_indicators.resolve_resources(list(requested), request.client)
        except resource_indicators.UnknownTarget as problem:
            raise _invalid_target(str(problem), request) from None

    def _narrow_resources(self, request: Any, granted: list[str]) -> list[str]:
        """Return the requested resources, limited to those of the grant (RFC 8707, section 2.2)."""
        if not granted:
            raise errors.InvalidGrantError(request=request)
        requested = _get_requested_resources(request)
        wanted = [resource_indicators.canonicalize_url(one) for one in requested] if requested else granted
        if any(one not in granted for one in wanted):
            raise _invalid_target("The user did not grant the client access to this resource", request)
        # Resources that an operator has removed since are not granted again.
        return self._resolve_resources(request, list(dict.fromkeys(wanted)))

    def revoke_token(self, token: str, token_type_hint: str | None, request: Any, *args: Any, **kwargs: Any) -> None:
        revocation.revoke_token(token, request.client)

    # Resources of the project that the toolkit protects

    def validate_bearer_token(self, token: str, required: Any, request: Any) -> bool:
        """Validate as the toolkit does, and also the user, the audience and the client."""
        if not super().validate_bearer_token(token, required, request):
            return False
        if access_tokens.is_usable(request.access_token):
            return True
        request.oauth2_error = {"error": "invalid_token", "error_description": "The access token is invalid."}
        return False

    def validate_id_token(self, token: str, required: Any, request: Any) -> bool:
        """Return False: an ID token is for the client, not for a resource."""
        return False

    def validate_jwt_bearer_token(self, token: str, required: Any, request: Any) -> bool:
        return False


_TOKEN_CREATORS = {
    "authorization_code": Validator._create_from_code,
    "refresh_token": Validator._create_from_refresh,
    "client_credentials": Validator._create_from_credentials,
}


def _read_credentials(request: Any) -> credentials.ClientCredentials | None:
    form = {"client_id": request.client_id, "client_secret": request.client_secret}
    try:
        return credentials.read_credentials(request.headers.get("HTTP_AUTHORIZATION"), form)
    except credentials.MalformedCredentials:
        return None


def _is_trusted(client: Any) -> bool:
    """Return True if an operator lets the client act for a user without consent."""
    profile = getattr(client, "mcp_profile", None)
    if profile is None or not profile.trusted or profile.source != profile.Source.MANUAL:
        return False
    manual = client.registration_source == client.RegistrationSource.MANUAL and credentials.is_confidential(client)
    return manual and profile.service_user is not None and profile.service_user.is_active


def _get_acting_user(client: Any, request: Any) -> Any:
    """Return the user that a token is for; None before the user has logged in."""
    if client.authorization_grant_type == get_application_model().GRANT_CLIENT_CREDENTIALS:
        profile = getattr(client, "mcp_profile", None)
        return None if profile is None else profile.service_user
    return request.user


def _is_withdrawn(row: Any) -> bool:
    """Return True if the user has withdrawn the consent of the token.

    A later consent, for the same or another redirect URI, gives the access again.
    """
    consents = Consent.objects.filter(user=row.user_id, application=row.application_id, resource__in=row.resource or ())
    pairs = list(consents.values_list("resource", "revoked"))
    given = {resource for resource, revoked in pairs if revoked is None}
    return any(resource not in given for resource, _ in pairs)


def _get_requested_resources(request: Any) -> list[Any]:
    """Return all `resource` parameters.

    oauthlib keeps only the last value of a repeated form parameter, so the decoded body is read.
    """
    given = request.resource
    if isinstance(given, list | tuple):
        return list(given)
    repeated = [value for name, value in (request.decoded_body or ()) if name == "resource"]
    return repeated or ([given] if given else [])


def _save_access_token(token: dict[str, Any], request: Any, resources: list[str]) -> Any:
    """Save a token, and record the use of its client."""
    now = timezone.now()
    row = get_access_token_model()(
        user=request.user,
        application=request.client,
        scope=" ".join(request.scopes),
        expires=now + timedelta(seconds=token["expires_in"]),
        resource=resources,
    )

    set_token(row, token["access_token"])
    row.save()
    token["scope"] = row.scope
    # Limited: often enough to find unused clients, and rare enough for a client with many users.
    stale = Q(last_used=None) | Q(last_used__lt=now - LAST_USED_INTERVAL)
    ClientProfile.objects.filter(stale, application=request.client).update(last_used=now)
    return row


def _invalid_target(description: str, request: Any) -> errors.OAuth2Error:
    return errors.CustomOAuth2Error(
        error="invalid_target", description=description, request=request, state=request.state
    )
