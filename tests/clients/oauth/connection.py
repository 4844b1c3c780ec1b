"""The official SDK's client with its OAuth provider, and a browser for its user.

async with connected(url, Browser(), mode="auto") as connection:
    await connection.call("look")
"""

import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

from tests.clients.oauth.browser import Browser
from tests.support.waiting import WAIT_SECONDS

REDIRECT = "http://localhost:3999/callback"
MODES = {"legacy": "2025-11-25", "auto": "2026-07-28"}
"""The SDK's names for the eras, each with the revision that is agreed on."""


class Memory:
    """The storage of a client between two starts."""

    def __init__(self, client: OAuthClientInformationFull | None = None) -> None:
        self.tokens: OAuthToken | None = None
        self.client = client

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class Connection:
    """A connected client, with the responses that it received over HTTP."""

    def __init__(self, url: str, browser: Browser, memory: Memory) -> None:
        self.url, self.browser, self.memory = url, browser, memory
        self.client: Client
        self.provider: OAuthClientProvider
        self.http: httpx2.AsyncClient
        self.trace: list[tuple[str, str, int]] = []
        """Method, URL and status of each answer."""
        self.challenges: list[str] = []

    async def note(self, answer: httpx2.Response) -> None:
        """Record a response."""
        self.trace.append((answer.request.method, str(answer.request.url), answer.status_code))
        if challenge := answer.headers.get("www-authenticate"):
            self.challenges.append(challenge)

    def statuses(self, path: str) -> list[int]:
        """List the statuses of the responses of one path."""
        return [status for _, url, status in self.trace if urlsplit(url).path == path]

    @property
    def token(self) -> str:
        """Return the access token of the client."""
        assert self.memory.tokens is not None
        return self.memory.tokens.access_token

    @property
    def scopes(self) -> set[str]:
        """Return the granted scopes, without the one for refresh tokens."""
        assert self.memory.tokens is not None
        return set((self.memory.tokens.scope or "").split()) - {"offline_access"}

    async def names(self) -> list[str]:
        """List the tools that the client sees."""
        return [tool.name for tool in (await self.client.list_tools()).tools]

    async def call(self, tool: str, **arguments: Any) -> str:
        """Return the text of a tool's result."""
        result = await self.client.call_tool(tool, arguments)
        assert not result.is_error, result
        text: str = result.content[0].text  # type: ignore[union-attr]
        return text

    def expire(self) -> None:
        """Expire the token by the clock of the client."""
        self.provider.context.token_expiry_time = 1.0


def callback(browser: Browser, redirect: str) -> Any:
    """Build the callback that receives the redirect of the browser."""

    async def read_code() -> AuthorizationCodeResult:
        assert browser.address.startswith(f"{redirect}?"), browser.address
        said = {name: values[0] for name, values in parse_qs(urlsplit(browser.address).query).items()}
        return AuthorizationCodeResult(code=said.get("code", ""), state=said.get("state"), iss=said.get("iss"))

    return read_code


@asynccontextmanager
async def connected(
    url: str,
    browser: Browser | None = None,
    *,
    mode: str = "auto",
    memory: Memory | None = None,
    metadata: OAuthClientMetadata | None = None,
    document: str | None = None,
    redirect: str = REDIRECT,
    transport: httpx2.AsyncBaseTransport | None = None,
    **client_options: Any,
) -> AsyncIterator[Connection]:
    """Connect a client, which authorizes itself on the way.

    Args:
        url: The endpoint.
        browser: The browser of the user, in which the site asks for consent.
        mode: A key of `MODES`.
        memory: The storage of the client, with the tokens of an earlier start.
        metadata: The metadata of its registration.
        document: The URL of its metadata document.
        redirect: Its redirect URI.
        transport: The HTTP transport of its requests.
        client_options: Further options of the SDK's client.
    """
    browser = Browser() if browser is None else browser
    memory = Memory() if memory is None else memory
    metadata = metadata or OAuthClientMetadata(client_name="Flows", redirect_uris=[redirect])  # type: ignore[list-item]
    connection = Connection(url, browser, memory)
    connection.provider = OAuthClientProvider(
        url, metadata, memory, browser.open, callback(browser, redirect), client_metadata_url=document
    )
    hooks = {"response": [connection.note]}
    async with httpx2.AsyncClient(
        auth=connection.provider, timeout=WAIT_SECONDS, event_hooks=hooks, transport=transport
    ) as http:
        connection.http = http
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the client deprecates the features of old revisions
            async with Client(streamable_http_client(url, http_client=http), mode=mode, **client_options) as client:
                connection.client = client
                yield connection


def cause(problem: BaseException) -> BaseException:
    """Return the exception inside the groups that task groups raise."""
    while isinstance(problem, BaseExceptionGroup):
        problem = problem.exceptions[0]
    return problem
