"""An MCP server and its authorization server, both in memory.

authority = Authority()
outgoing = authority.outgoing("https://mcp.example/mcp")
authority.metadata["issuer"] = "https://evil.example"  # and so on
"""

import base64
import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx

from mcp_django.client.oauth.http import OAuthHTTPClient
from mcp_django.conf.clients import ClientAuth, ClientSettings

SERVER, ISSUER = "https://mcp.example/mcp", "https://id.example"
REDIRECT = "https://testserver/mcp/clients/one/callback/"
PUBLIC = "93.184.215.14"
Answer = httpx.Response


class Authority(httpx.AsyncBaseTransport):
    """Both servers. A test can change their responses; `asked` lists requests as method and URL."""

    def __init__(self) -> None:
        self.addresses: dict[str, Sequence[str]] = {}
        self.asked: list[tuple[str, str]] = []
        self.forms: list[dict[str, str]] = []
        """The response of the token endpoint."""
        self.headers: list[httpx.Headers] = []
        self.revoked: list[str] = []
        self.challenge = f'Bearer resource_metadata="{SERVER}-metadata", scope="read"'
        self.resource: dict[str, Any] = {"resource": SERVER, "authorization_servers": [ISSUER]}
        self.metadata: dict[str, Any] = {
            "issuer": ISSUER,
            "authorization_endpoint": f"{ISSUER}/authorize",
            "token_endpoint": f"{ISSUER}/token",
            "registration_endpoint": f"{ISSUER}/register",
            "revocation_endpoint": f"{ISSUER}/revoke",
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
        }
        self.registered: dict[str, Any] = {"token_endpoint_auth_method": "client_secret_post"}
        self.registrations = 0
        self.refreshes = 0
        self.live = "r0"
        """The only valid refresh token: a reused one ends the grant."""
        self.lifetime = 3600
        self.other: dict[str, Callable[[httpx.Request], Answer]] = {}
        """Responses of other URLs, and replacements of the regular ones."""

    def outgoing(self, url: str = SERVER) -> OAuthHTTPClient:
        """Build a client that reaches these servers and nothing else."""

        async def resolve(host: str, port: int) -> Sequence[str]:
            return self.addresses.get(host, [PUBLIC])

        return OAuthHTTPClient(url, resolve=resolve, transport=lambda: self)

    async def handle_async_request(self, request: httpx.Request) -> Answer:
        """Respond as a network does, with an unread body."""
        return unread(await self._answer(request))

    async def _answer(self, request: httpx.Request) -> Answer:
        url = f"{request.url.scheme}://{request.headers['host']}{request.url.path}"
        assert request.url.host in {PUBLIC, *(one for found in self.addresses.values() for one in found)}
        self.asked.append((request.method, url))
        if url in self.other:
            return self.other[url](request)
        form = dict(parse_qsl((await request.aread()).decode())) if request.method == "POST" else {}
        match request.method, url:
            case "POST", "https://mcp.example/mcp":
                return Answer(401, headers={"WWW-Authenticate": self.challenge})
            case "GET", "https://mcp.example/mcp-metadata":
                return Answer(200, json=self.resource)
            case "GET", "https://id.example/.well-known/oauth-authorization-server":
                return Answer(200, json=self.metadata)
            case "POST", "https://id.example/register":
                self.registrations += 1
                said = json.loads(request.content)
                made = {"client_id": f"c{self.registrations}", "client_secret": "client-s3cret"}
                return Answer(201, json={**said, **made, **self.registered})
            case "POST", "https://id.example/token":
                self.headers.append(request.headers)
                self.forms.append(form)
                return self.token(form)
            case "POST", "https://id.example/revoke":
                self.revoked.append(form["token"])
                return Answer(200)
        return Answer(404)

    def token(self, form: dict[str, str]) -> Answer:
        """Respond as the token endpoint."""
        if form["grant_type"] == "refresh_token":
            if form["refresh_token"] != self.live:
                self.live = "ended"  # a stolen copy is in use
                return Answer(400, json={"error": "invalid_grant", "error_description": "s3cret"})
            self.refreshes += 1
            self.live = f"r{self.refreshes}"
        given = {"access_token": f"a{self.refreshes}-s3cret", "token_type": "Bearer", "expires_in": self.lifetime}
        if form["grant_type"] != "client_credentials":
            given["refresh_token"] = self.live
        return Answer(200, json=given)

    def urls(self, method: str) -> list[str]:
        """List the URLs that were requested by a method."""
        return [url for asked, url in self.asked if asked == method]


def unread(answer: Answer) -> Answer:
    """Build a response whose body is still on the wire."""
    if not answer.is_closed:
        return answer
    return Answer(answer.status_code, headers=answer.headers, stream=httpx.ByteStream(answer.content))


def settings(url: str = SERVER, **auth: Any) -> ClientSettings:
    """Build the settings of a client, with AUTH in small letters."""
    return ClientSettings(alias="one", url=url, auth=ClientAuth(**{"type": "oauth", **auth}))


def query(url: str) -> dict[str, str]:
    """Parse the parameters of a URL, none of which comes twice."""
    pairs = parse_qsl(urlsplit(url).query, keep_blank_values=True)
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def challenge_of(verifier: str) -> str:
    """Compute the S256 challenge of a verifier (RFC 7636)."""
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
