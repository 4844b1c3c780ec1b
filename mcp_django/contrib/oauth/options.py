"""Settings of the authorization server: `MCP["OAUTH"]`.

The settings of django-oauth-toolkit are derived from them.
"""

from dataclasses import dataclass
from typing import Annotated, Any

from mcp_django.conf import register_settings
from mcp_django.conf.readers import Count, Flag, WrongValue, integer, matching, optional, seconds, tuple_of
from mcp_django.contrib.oauth.redirects import is_private_use

MINUTE_SECONDS, DAY_SECONDS = 60.0, 86400.0

_scheme = matching(r"[a-z][a-z0-9+.-]*", "schemes in lower case, such as 'cursor'")
_host = matching(r"\.?[a-z0-9-]+(\.[a-z0-9-]+)*", "hosts such as 'claude.ai', or '.example.com' for all its subdomains")


def _native_scheme(raw: Any) -> str:
    scheme: str = _scheme(raw)
    if not is_private_use(scheme):
        raise WrongValue("must not contain a scheme reserved by browsers")
    return scheme


def _seconds_up_to(maximum: float, *, zero: bool = False) -> Any:
    def read(raw: Any) -> float:
        number: float = seconds(zero=zero)(raw)
        if number > maximum:
            raise WrongValue(f"must be a number of seconds, up to {maximum:.0f}")
        return number

    return read


LifetimeSeconds = Annotated[float, _seconds_up_to(365 * DAY_SECONDS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthSettings:
    """Values of `MCP["OAUTH"]`."""

    code: Annotated[float, _seconds_up_to(600)] = 60.0
    """Seconds in which an authorization code can be exchanged, once."""
    access_token: Annotated[float, _seconds_up_to(DAY_SECONDS)] = 15 * MINUTE_SECONDS
    """Lifetime of an access token in seconds."""
    refresh_token: LifetimeSeconds = 30 * DAY_SECONDS
    """Seconds without a refresh after which the user must consent again."""
    refresh_grace: Annotated[float, _seconds_up_to(60, zero=True)] = 30.0
    """Seconds for which a superseded refresh token gives further pairs; 0 disables this.

    Processes that share a token and clients that missed the response need it.
    """
    siblings: Annotated[int, integer(0, 20)] = 5
    """Maximum number of further pairs."""
    dynamic_registration: Flag = True
    """True to allow dynamic client registration (RFC 7591)."""
    client_metadata_documents: Flag = True
    """True to accept a `client_id` that is the URL of a metadata document."""
    document_hosts: Annotated[tuple[str, ...] | None, optional(tuple_of(_host))] = None
    """Hosts from which metadata documents are fetched; None means all public hosts.

    ".example.com" includes all hosts below it.
    """
    native_schemes: Annotated[tuple[str, ...], tuple_of(_native_scheme)] = ("cursor",)
    """Private-use schemes (RFC 8252, section 7.1) allowed for redirects.

    https and loopback redirects are always allowed.
    """
    most_clients: Count = 5000
    """Maximum number of self-registered clients without approval. Further ones are rejected."""
    unused_days: Annotated[int, integer(1, 3650)] = 30
    """Days without use after which `mcp_clearclients` deletes a self-registered client.

    Clients with a valid token are kept.
    """
    remember_consent: Annotated[int, integer(0, 3650)] = 30
    """Days for which a consent is remembered; 0 means the user is always asked.

    It applies to the same client, resource, scopes and redirects.
    """
    remember_loopback: Flag = False
    """True to remember consents for clients on the user's own machine.

    Any program there can claim to be that client.
    """
    personal_tokens: Flag = True
    """True to serve the page for personal access tokens."""
    personal_token_days: Annotated[int, integer(1, 3650)] = 365
    """Maximum lifetime in days of a token that a user creates on the page.

    `MAX_TOKEN_DAYS` bounds it, too.
    """


get_settings = register_settings("OAUTH", OAuthSettings)
