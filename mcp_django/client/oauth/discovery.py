"""Finding a server's authorization server, and being a client of it: by the official SDK, whose provider is driven from
here instead of by an HTTP client.

The SDK asks for metadata (RFC 9728, RFC 8414), compares issuers and resources, and registers (or takes the id that it
is given, or the URL of a metadata document). Its requests go through `outgoing`. It is stopped where a person or a
token would be asked for, because that is another request, of another worker perhaps.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.auth.oauth2 import OAuthContext, check_registration_usable
from mcp.client.auth.utils import (
    extract_field_from_www_auth,
    extract_resource_metadata_from_www_auth,
    extract_scope_from_www_auth,
    handle_registration_response,
    issuers_match,
    union_scopes,
)
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthMetadata, OAuthToken
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp_types import LATEST_PROTOCOL_VERSION
from pydantic import AnyUrl

from mcp_django.client.oauth.http import AuthorizationFailed, Outgoing, web_url
from mcp_django.conf.clients import ClientAuth, ClientSettings

Stop = Callable[[httpx2.Request], bool]
LONGEST_SCOPES: Final = 4000
CLIENT_AUTH: Final[dict[str, Literal["client_secret_basic", "client_secret_post"]]] = {
    "basic": "client_secret_basic",
    "post": "client_secret_post",
}
_SCOPES = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+(?: [\x21\x23-\x5b\x5d-\x7e]+)*")
_CHALLENGED_URL = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,2000}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """What a server said when it refused a request."""

    resource_metadata: str | None = None
    scopes: str | None = None
    insufficient: bool = False
    """Was there a token, of too few scopes?"""

    @classmethod
    def of(cls, response: httpx2.Response) -> "Challenge | None":
        """The challenge of a response; None for one that is none."""
        step_up = response.status_code == 403 and _error(response) == "insufficient_scope"
        if response.status_code != 401 and not step_up:
            return None
        where = extract_resource_metadata_from_www_auth(response)
        return cls(
            resource_metadata=where if where and _CHALLENGED_URL.fullmatch(where) else None,
            scopes=clean_scopes(extract_scope_from_www_auth(response)),
            insufficient=step_up,
        )

    def response(self, request: httpx2.Request) -> httpx2.Response:
        """It as the response that the SDK's provider begins at."""
        said = []
        if self.resource_metadata:
            said.append(f'resource_metadata="{self.resource_metadata}"')
        if self.scopes:
            said.append(f'scope="{self.scopes}"')
        headers = {"WWW-Authenticate": "Bearer " + ", ".join(said)} if said else {}
        return httpx2.Response(401, headers=headers, request=request)


class Memory:
    """What the SDK's provider keeps while it is driven (`TokenStorage`): the registration only."""

    def __init__(self, client: OAuthClientInformationFull | None) -> None:
        self.client, self.is_new = client, False

    async def get_tokens(self) -> OAuthToken | None:
        return None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        raise AssertionError("it is stopped before it has any")

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client, self.is_new = client_info, True


class Discovering(OAuthClientProvider):
    """The SDK's provider, which ends with a request of its own making that is never sent."""

    def __init__(self, *args: Any, issuer: str | None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.end = httpx2.Request("GET", "about:blank")
        self._issuer = issuer

    def _select_authorization_server(self, advertised: list[str]) -> str:
        return preferred(advertised, self._issuer)

    async def _perform_authorization(self) -> httpx2.Request:
        return self.end


async def discover(
    settings: ClientSettings,
    outgoing: Outgoing,
    *,
    challenge: Challenge,
    redirect_uri: str,
    known: OAuthClientInformationFull | None,
    native: bool = False,
) -> tuple[OAuthContext, OAuthClientInformationFull | None]:
    """Where and as whom to ask for authorization, and the registration, if it is a new one. `known` is an earlier one,
    `native` says that the redirect leads to a program on the user's machine. Raises AuthorizationFailed.
    """
    auth = settings.auth or ClientAuth(type="oauth")
    memory = Memory(configured(auth, redirect_uri) or known)
    metadata = OAuthClientMetadata(
        client_name=auth.client_name or "Django",
        redirect_uris=[AnyUrl(redirect_uri)],
        # Those of the web have https (OpenID Connect Registration, section 2): a project under development is none.
        application_type="native" if native or redirect_uri.startswith("http://") else "web",
    )
    url = auth.client_metadata_url if not native else None
    provider = Discovering(web_url(settings.url or ""), metadata, memory, client_metadata_url=url, issuer=auth.issuer)
    registers = auth.client_id is None
    await drive(provider, outgoing, challenge, stop=lambda outbound: outbound is provider.end, registers=registers)
    context = provider.context
    check_metadata(context.oauth_metadata, auth.issuer)
    _settle_method(context)
    return context, memory.client if memory.is_new else None


async def probe(settings: ClientSettings, outgoing: Outgoing) -> Challenge:
    """What the server says to somebody without a token."""
    body = {"jsonrpc": "2.0", "id": 0, "method": "ping"}
    headers = {**settings.headers, "Accept": "application/json, text/event-stream"}
    url = web_url(settings.url or "")
    asked = httpx2.Request("GET", url, headers=headers)
    if settings.kind != "sse":
        asked = httpx2.Request("POST", url, headers=headers, json=body)
    try:
        return Challenge.of(await outgoing.send(asked, body=False)) or Challenge()
    except ValueError:
        return Challenge()


async def drive(
    provider: OAuthClientProvider, outgoing: Outgoing, challenge: Challenge, *, stop: Stop, registers: bool = False
) -> None:
    """Let the provider answer a challenge, until it makes the request at which to stop. Unless it `registers`, it may
    post nothing before. Raises AuthorizationFailed.
    """
    request = httpx2.Request(
        "POST", provider.context.server_url, headers={MCP_PROTOCOL_VERSION_HEADER: LATEST_PROTOCOL_VERSION}
    )
    flow = provider.async_auth_flow(request)
    try:
        await anext(flow)
        response = challenge.response(request)
        while True:
            outbound = await flow.asend(response)
            if stop(outbound):
                return
            if outbound.method == "POST" and not registers:
                raise AuthorizationFailed("The server leads to another authorization server than CLIENT_ID is for")
            response = await outgoing.send(outbound)
            if outbound.method == "POST":
                await _check_registration(response)
    except OAuthFlowError:
        # Its text repeats what others sent.
        raise AuthorizationFailed("What the server says of its authorization server does not fit together") from None
    except (ValueError, TypeError, StopAsyncIteration):
        raise AuthorizationFailed("What the server says of its authorization server cannot be read") from None
    finally:
        await flow.aclose()


def configured(auth: ClientAuth, redirect_uri: str | None) -> OAuthClientInformationFull | None:
    """The client that the settings name; None where they name none."""
    if auth.client_id is None:
        return None
    return OAuthClientInformationFull(
        client_id=auth.client_id,
        client_secret=auth.client_secret,
        redirect_uris=None if redirect_uri is None else [AnyUrl(redirect_uri)],
        token_endpoint_auth_method=CLIENT_AUTH[auth.client_auth] if auth.client_secret else "none",
        issuer=auth.issuer,
    )


def check_metadata(metadata: OAuthMetadata | None, issuer: str | None) -> None:
    """Raise AuthorizationFailed unless codes of this authorization server are bound to who asks for them (PKCE, which
    it has to announce), and it is the one that the settings name.
    """
    if issuer is not None and (metadata is None or not issuers_match(str(metadata.issuer), issuer)):
        raise AuthorizationFailed("The server leads to another authorization server than ISSUER names")
    if metadata is not None and "S256" not in (metadata.code_challenge_methods_supported or ()):
        raise AuthorizationFailed("The authorization server does not say that it supports PKCE (S256)")


def preferred(advertised: Sequence[str], issuer: str | None) -> str:
    """The authorization server that the settings name, where the server names it too; else the first."""
    return next((one for one in advertised if issuer is not None and issuers_match(one, issuer)), advertised[0])


def issuer_of(context: OAuthContext) -> str:
    """Who issues the tokens: without metadata the server itself, as revisions before metadata have it."""
    if context.oauth_metadata is not None:
        return str(context.oauth_metadata.issuer)
    return context.get_authorization_base_url(context.server_url)


def clean_scopes(scopes: str | None) -> str | None:
    """Scopes as another server named them, if they are scopes."""
    if not scopes or len(scopes) > LONGEST_SCOPES or not _SCOPES.fullmatch(scopes):
        return None
    return scopes


def all_scopes(*scopes: str | None) -> str | None:
    """Scopes of several places together, each once."""
    found: str | None = None
    for some in scopes:
        found = union_scopes(found, some)
    return found


def scopes_to_ask(auth: ClientAuth, challenge: Challenge, *more: str | None) -> Challenge:
    """The challenge as if it had named the scopes that are to be asked for: those of the settings, else its own, and
    those that calls lacked before. With none, the SDK takes what the metadata names.
    """
    scopes = all_scopes(" ".join(auth.scopes) or challenge.scopes, *more)
    return Challenge(resource_metadata=challenge.resource_metadata, scopes=clean_scopes(scopes))


def _settle_method(context: OAuthContext) -> None:
    """How to show the secret, where the registration does not say (RFC 7591, section 2)."""
    client, metadata = context.client_info, context.oauth_metadata
    if client is None or client.client_secret is None or client.token_endpoint_auth_method is not None:
        return
    known = metadata.token_endpoint_auth_methods_supported if metadata is not None else None
    basic, post = CLIENT_AUTH["basic"], CLIENT_AUTH["post"]
    client.token_endpoint_auth_method = post if known and post in known and basic not in known else basic


async def _check_registration(response: httpx2.Response) -> None:
    """Here and not in the SDK, which logs what it does not like."""
    if response.status_code not in (200, 201):
        raise AuthorizationFailed(
            f"The authorization server registers no clients ({response.status_code}); set CLIENT_ID"
        )
    try:
        check_registration_usable(await handle_registration_response(response))
    except OAuthFlowError:
        raise AuthorizationFailed("The authorization server's registration cannot be used") from None


def _error(response: httpx2.Response) -> str | None:
    return extract_field_from_www_auth(response, "error")
