"""`MCP["OAUTH"]`: how the authorization server behaves. What django-oauth-toolkit itself is told comes from these."""

from dataclasses import dataclass
from typing import Annotated, Any

from mcp_django.conf import register_settings
from mcp_django.conf.readers import Count, Flag, WrongValue, integer, matching, optional, seconds, several
from mcp_django.contrib.oauth.redirects import is_private_use

MINUTE, DAY = 60.0, 86400.0

_scheme = matching(r"[a-z][a-z0-9+.-]*", "schemes in small letters, such as 'cursor'")
_host = matching(r"\.?[a-z0-9-]+(\.[a-z0-9-]+)*", "hosts such as 'claude.ai', or '.example.com' for all below it")


def _native_scheme(raw: Any) -> str:
    found: str = _scheme(raw)
    if not is_private_use(found):
        raise WrongValue("must not name a scheme of browsers")
    return found


def _up_to(most: float, *, zero: bool = False) -> Any:
    def read(raw: Any) -> float:
        number: float = seconds(zero=zero)(raw)
        if number > most:
            raise WrongValue(f"must be a number of seconds, up to {most:.0f}")
        return number

    return read


Lifetime = Annotated[float, _up_to(365 * DAY)]


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthSettings:
    """`MCP["OAUTH"]`."""

    code: Annotated[float, _up_to(600)] = 60.0
    """Seconds in which an authorization code can be exchanged, once."""
    access_token: Annotated[float, _up_to(DAY)] = 15 * MINUTE
    """Seconds for which an access token is good."""
    refresh_token: Lifetime = 30 * DAY
    """Seconds without a refresh after which a client has to ask the user again."""
    refresh_grace: Annotated[float, _up_to(60, zero=True)] = 30.0
    """Seconds for which a refresh token that was just exchanged gives further pairs: to processes that share one, and
    to clients that did not hear the answer. 0: never."""
    siblings: Annotated[int, integer(0, 20)] = 5
    """How many further pairs."""
    dynamic_registration: Flag = True
    """May clients register themselves (RFC 7591)?"""
    client_metadata_documents: Flag = True
    """May the `client_id` be the URL of a document that describes the client?"""
    document_hosts: Annotated[tuple[str, ...] | None, optional(several(_host))] = None
    """The only hosts from which such documents are fetched; ".example.com" means all below it. None: any that is
    public."""
    native_schemes: Annotated[tuple[str, ...], several(_native_scheme)] = ("cursor",)
    """Private-use schemes (RFC 8252, section 7.1) that clients may be redirected to, besides https and loopback."""
    most_clients: Count = 5000
    """Clients that may have registered themselves without anybody having approved of them. One more is refused."""
    unused_days: Annotated[int, integer(1, 3650)] = 30
    """Days after which `mcp_clearclients` deletes a client that registered itself and has no token."""
    remember_consent: Annotated[int, integer(0, 3650)] = 30
    """Days for which a user is not asked again about the same client, resource, scopes and redirects. 0: always ask."""
    remember_loopback: Flag = False
    """Remember it for clients on the user's own machine too? Any program there can say that it is that client."""
    personal_tokens: Flag = True
    """Have a page on which users make personal access tokens?"""
    personal_token_days: Annotated[int, integer(1, 3650)] = 365
    """Days for which such a token may last at most."""


get_settings = register_settings("OAUTH", OAuthSettings)
