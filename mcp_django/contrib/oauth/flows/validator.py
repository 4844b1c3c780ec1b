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
from mcp_django.contrib.oauth.flows import authorization_codes, refresh_rotation, revocation
from mcp_django.contrib.oauth.models import ClientProfile, Consent
from mcp_django.contrib.oauth.options import get_settings
from mcp_django.contrib.oauth.tokens import access_tokens as bearers
from mcp_django.contrib.oauth.tokens import credentials, resource_indicators, scopes
from mcp_django.contrib.oauth.tokens.token_format import digest
from mcp_django.contrib.oauth.toolkit_compat import (
    BaseValidator,
    access_tokens,
    applications,
    at_source,
    grants,
    set_token,
)

USED_EVERY: Final = timedelta(hours=1)
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
        known = request.client
        if known is None or getattr(known, "client_id", None) != client_id:
            known = credentials.find(client_id)
        request.client = known if known is not None and known.is_usable(request) else None
        return request.client

    def client_authentication_required(self, request: Any, *args: Any, **kwargs: Any) -> bool:
        """Return True for confidential clients and for clients that present a secret.

        A public client with a wrong secret is not trusted either.
        """
        found = _shown(request)
        if found is None or found.secret is not None:
            return True
        client = self.load_client(found.client_id, request)
        return client is None or credentials.is_confidential(client)

    def authenticate_client(self, request: Any, *args: Any, **kwargs: Any) -> bool:
        found = _shown(request)
        client = credentials.authenticated(found)
        if found is None or client is None or not client.is_usable(request):
            return False
        request.client, request.client_id = client, found.client_id
        return True

    def validate_grant_type(
        self, client_id: str, grant_type: str, client: Any, request: Any, *args: Any, **kwargs: Any
    ) -> bool:
        model = applications()
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
        offered = scopes.offered(client, user=_acting_user(client, request))
        kept = [scope for scope in dict.fromkeys(wanted) if scope in offered]
        request.scopes = kept
        wanted[:] = kept
        return bool(kept)

    def get_default_scopes(self, client_id: str, request: Any, *args: Any, **kwargs: Any) -> list[str]:
        return scopes.default()

    def get_original_scopes(self, refresh_token: str, request: Any, *args: Any, **kwargs: Any) -> list[str]:
        """Return the consented scopes that client and user may still have."""
        row = request.refresh_token_instance
        # A token without its access token was rejected before.
        return scopes.still_offered(row.access_token.scope, request.client, user=row.user)

    def is_within_original_scope(
        self, request_scopes: list[str], refresh_token: str, request: Any, *args: Any, **kwargs: Any
    ) -> bool:
        """Return True if all known scopes are within the original ones.

        Unknown scopes were dropped at the consent and are dropped again.
        """
        original = self.get_original_scopes(refresh_token, request)
        known = scopes.declared()
        request.scopes = [scope for scope in request_scopes if scope in original]
        return bool(request.scopes) and all(scope in original or scope not in known for scope in request_scopes)

    # Codes

    def validate_redirect_uri(self, client_id: str, redirect_uri: str, request: Any, *args: Any, **kwargs: Any) -> bool:
        """Return True for a registered redirect URI. The port of loopback URIs may differ."""
        return redirects.is_well_formed(redirect_uri) and bool(request.client.redirect_uri_allowed(redirect_uri))

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
        at_source(grants()).create(
            application=request.client,
            user=request.user,
            code=digest(code["code"]),
            expires=timezone.now() + timedelta(seconds=get_settings().code),
            redirect_uri=request.redirect_uri,
            scope=" ".join(request.scopes),
            code_challenge=request.code_challenge,
            code_challenge_method=request.code_challenge_method,
            claims="{}",
            resource=self._targets(request, _asked_resources(request)),
        )

    def validate_code(self, client_id: str, code: str, client: Any, request: Any, *args: Any, **kwargs: Any) -> bool:
        rows = at_source(grants()).filter(code=digest(code), application=client)
        grant = rows.select_related("user").first()
        if grant is None:
            authorization_codes.was_used(code, client)
            return False
        if grant.is_expired() or not grant.user.is_active:
            return False
        # The row is read once: a concurrent exchange could delete it between two reads.
        request.mcp_grant = grant
        request.scopes, request.user = scopes.still_offered(grant.scope, client, user=grant.user), grant.user
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
        row = refresh_rotation.find(refresh_token)
        if row is None or row.application_id != client.pk:
            return False
        if row.user is None or not row.user.is_active or refresh_rotation.is_idle(row):
            return False

        if refresh_rotation.is_replayed(row) or _is_withdrawn(row):
            revocation.end_family(row.token_family)
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
        make = _MAKERS.get(request.grant_type)
        if make is None or not request.scopes:
            raise errors.InvalidScopeError(request=request)
        with transaction.atomic(using=router.db_for_write(access_tokens())):
            made = make(self, token, request)
        if made is None:
            if request.grant_type == "authorization_code":
                authorization_codes.was_used(request.code, request.client)
            raise errors.InvalidGrantError(request=request)

    def _from_code(self, token: dict[str, Any], request: Any) -> Any:
        grant = request.mcp_grant
        resources = self._narrowed(request, grant.resource)
        used = authorization_codes.claim(request.code, request.client)
        if used is None or not at_source(grants()).filter(pk=grant.pk).delete()[0]:
            return None
        family = refresh_rotation.begin(request.user, request.client)
        access = _keep_access(token, request, resources)
        refresh_rotation.keep(token["refresh_token"], access_token=access, family=family, generation=0)
        authorization_codes.note(used, family=family, access_token=token["access_token"])
        return access

    def _from_refresh(self, token: dict[str, Any], request: Any) -> Any:
        row = request.refresh_token_instance
        family: UUID = row.token_family
        resources = self._narrowed(request, row.resource)
        generation = refresh_rotation.take_turn(row)
        if generation is None:
            revocation.end_family(family)
            return None
        access = _keep_access(token, request, resources)
        refresh_rotation.keep(token["refresh_token"], access_token=access, family=family, generation=generation)
        return access

    def _from_credentials(self, token: dict[str, Any], request: Any) -> Any:
        request.user = request.client.mcp_profile.service_user
        return _keep_access(token, request, self._targets(request, _asked_resources(request)))

    def _targets(self, request: Any, asked: Iterable[Any]) -> list[str]:
        try:
            return resource_indicators.resolve(list(asked), request.client)
        except resource_indicators.UnknownTarget as problem:
            raise _invalid_target(str(problem), request) from None

    def _narrowed(self, request: Any, granted: list[str]) -> list[str]:
        """Return the requested resources, limited to those of the grant (RFC 8707, section 2.2)."""
        if not granted:
            raise errors.InvalidGrantError(request=request)
        asked = _asked_resources(request)
        wanted = [resource_indicators.canonical(one) for one in asked] if asked else granted
        if any(one not in granted for one in wanted):
            raise _invalid_target("The user did not grant the client access to this resource", request)
        # Resources that an operator has removed since are not granted again.
        return self._targets(request, list(dict.fromkeys(wanted)))

    def revoke_token(self, token: str, token_type_hint: str | None, request: Any, *args: Any, **kwargs: Any) -> None:
        revocation.end_token(token, request.client)

    # Resources of the project that the toolkit protects

    def validate_bearer_token(self, token: str, required: Any, request: Any) -> bool:
        """Validate as the toolkit does, and also the user, the audience and the client."""
        if not super().validate_bearer_token(token, required, request):
            return False
        if bearers.is_usable(request.access_token):
            return True
        request.oauth2_error = {"error": "invalid_token", "error_description": "The access token is invalid."}
        return False

    def validate_id_token(self, token: str, required: Any, request: Any) -> bool:
        """Return False: an ID token is for the client, not for a resource."""
        return False

    def validate_jwt_bearer_token(self, token: str, required: Any, request: Any) -> bool:
        return False


_MAKERS = {
    "authorization_code": Validator._from_code,
    "refresh_token": Validator._from_refresh,
    "client_credentials": Validator._from_credentials,
}


def _shown(request: Any) -> credentials.Shown | None:
    form = {"client_id": request.client_id, "client_secret": request.client_secret}
    try:
        return credentials.shown(request.headers.get("HTTP_AUTHORIZATION"), form)
    except credentials.Malformed:
        return None


def _is_trusted(client: Any) -> bool:
    """Return True if an operator lets the client act for a user without consent."""
    profile = getattr(client, "mcp_profile", None)
    if profile is None or not profile.trusted or profile.source != profile.Source.MANUAL:
        return False
    manual = client.registration_source == client.RegistrationSource.MANUAL and credentials.is_confidential(client)
    return manual and profile.service_user is not None and profile.service_user.is_active


def _acting_user(client: Any, request: Any) -> Any:
    """Return the user that a token is for; None before the user has logged in."""
    if client.authorization_grant_type == applications().GRANT_CLIENT_CREDENTIALS:
        profile = getattr(client, "mcp_profile", None)
        return None if profile is None else profile.service_user
    return request.user


def _is_withdrawn(row: Any) -> bool:
    """Return True if the user has withdrawn the consent of the token."""
    consents = Consent.objects.filter(user=row.user_id, application=row.application_id, resource__in=row.resource or ())
    return consents.exclude(revoked=None).exists()


def _asked_resources(request: Any) -> list[Any]:
    """Return all `resource` parameters.

    oauthlib keeps only the last value of a repeated form parameter, so the decoded body is read.
    """
    given = request.resource
    if isinstance(given, list | tuple):
        return list(given)
    many = [value for name, value in (request.decoded_body or ()) if name == "resource"]
    return many or ([given] if given else [])


def _keep_access(token: dict[str, Any], request: Any, resources: list[str]) -> Any:
    row = access_tokens()(
        user=request.user,
        application=request.client,
        scope=" ".join(request.scopes),
        expires=timezone.now() + timedelta(seconds=token["expires_in"]),
        resource=resources,
    )

    set_token(row, token["access_token"])
    row.save()
    token["scope"] = row.scope
    _note_use(request.client)
    return row


def _note_use(client: Any) -> None:
    """Record the last use of a client, at a limited rate.

    The rate is high enough to find unused clients, and low enough for a client with many users.
    """
    now = timezone.now()
    stale = Q(last_used=None) | Q(last_used__lt=now - USED_EVERY)
    ClientProfile.objects.filter(stale, application=client).update(last_used=now)


def _invalid_target(description: str, request: Any) -> errors.OAuth2Error:
    return errors.CustomOAuth2Error(
        error="invalid_target", description=description, request=request, state=request.state
    )
