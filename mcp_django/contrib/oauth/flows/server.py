"""Supported grants: authorization code with refresh, and client credentials.

Client credentials are for clients that an operator trusts. The implicit, password and device code grants are not
supported (OAuth 2.1, section 10).
"""

from typing import Any, Final

from oauthlib.oauth2 import (
    AuthorizationCodeGrant,
    AuthorizationEndpoint,
    BearerToken,
    ClientCredentialsGrant,
    RefreshTokenGrant,
    ResourceEndpoint,
    RevocationEndpoint,
    TokenEndpoint,
)

from mcp_django.contrib.oauth.toolkit_compat import restrict_to_s256

BEARER: Final = "Bearer"


class AuthorizationServer(
    AuthorizationEndpoint,  # type: ignore[misc]
    TokenEndpoint,  # type: ignore[misc]
    ResourceEndpoint,  # type: ignore[misc]
    RevocationEndpoint,  # type: ignore[misc]
):
    """OAuth server that the toolkit creates per request.

    The toolkit passes its validator, token generators and token lifetime.
    """

    def __init__(
        self,
        request_validator: Any,
        token_expires_in: Any = None,
        token_generator: Any = None,
        refresh_token_generator: Any = None,
        **options: Any,
    ) -> None:
        code = AuthorizationCodeGrant(request_validator)
        restrict_to_s256(code)
        refresh = RefreshTokenGrant(request_validator)
        bearer = BearerToken(request_validator, token_generator, token_expires_in, refresh_token_generator)

        AuthorizationEndpoint.__init__(
            self, default_response_type="code", default_token_type=bearer, response_types={"code": code}
        )
        TokenEndpoint.__init__(
            self,
            # Handles unknown grant types by responding that they are not supported.
            default_grant_type="authorization_code",
            default_token_type=bearer,
            grant_types={
                "authorization_code": code,
                "refresh_token": refresh,
                "client_credentials": ClientCredentialsGrant(request_validator),
            },
        )
        ResourceEndpoint.__init__(self, default_token=BEARER, token_types={BEARER: bearer})
        RevocationEndpoint.__init__(self, request_validator)
