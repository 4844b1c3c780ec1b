"""Authorization from a terminal by a redirect to this machine (RFC 8252)."""

import asyncio
import html
import secrets
import webbrowser
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from mcp_django.client.oauth.flow import finish_authorization, get_token_owner, prepare_authorization
from mcp_django.client.oauth.http import AuthorizationFailed, OAuthHTTPClient
from mcp_django.client.oauth.token_store import TokenRow, run_in_thread
from mcp_django.conf.clients import ClientSettings

CALLBACK_PATH: Final = "/callback"
MAX_REQUEST_BYTES: Final = 16 * 1024
"""Maximum size of a request to the server, in bytes."""
_PAGE = "<!doctype html><html lang=en><meta charset=utf-8><title>{0}</title><p>{0}</p></html>"


async def login(
    settings: ClientSettings,
    user: Any = None,
    *,
    write: Callable[[str], None],
    port: int = 0,
    open_url: Callable[[str], Any] | None = webbrowser.open,
    timeout: float = 300.0,
    http_client: OAuthHTTPClient | None = None,
) -> None:
    """Authorize a server by the person at this terminal.

    The authorization is for `user`, or for the project where AUTH is not per user. `write` prints instructions.
    `open_url` opens a browser; None opens none. The browser is redirected to `http://127.0.0.1:<port>/callback`. The
    default is any free port; set it if CLIENT_ID is registered for one. `timeout` is in seconds. Raises
    AuthorizationFailed, and ValueError if a required user is missing.
    """
    if settings.auth is None or settings.auth.type != "oauth":
        raise AuthorizationFailed(f"{settings.alias} does not use OAuth, so authorization is not needed")
    if settings.per_user and user is None:
        raise ValueError(f"{settings.alias} is used per user; name the user")
    owner = get_token_owner(settings, user)

    http_client = http_client or OAuthHTTPClient(settings.url or "")
    async with LoopbackServer(port) as server:
        url, pending = await prepare_authorization(
            settings, owner, server.redirect_uri, http_client=http_client, is_native=True
        )
        server.state = pending.state
        write(f"Open this URL in a browser to authorize {settings.alias}:\n\n{url}\n")
        if open_url is not None:
            await asyncio.to_thread(open_url, url)
        try:
            async with asyncio.timeout(timeout):
                response_params = await server.response_params
        except TimeoutError:
            raise AuthorizationFailed(f"The browser did not return within {timeout:g} seconds") from None

    grant = await finish_authorization(settings, pending, response_params, http_client=http_client)
    await run_in_thread(TokenRow(settings, owner).write, grant)


class LoopbackServer:
    """HTTP server on this machine that waits for the redirect with `state`.

    Other requests are rejected.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self.state = ""
        self.response_params: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()

    @property
    def redirect_uri(self) -> str:
        """Redirect URI with the port that the server listens on, on 127.0.0.1."""
        return f"http://127.0.0.1:{self._port}{CALLBACK_PATH}"

    async def __aenter__(self) -> "LoopbackServer":
        try:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port, limit=MAX_REQUEST_BYTES)
        except OSError:
            raise AuthorizationFailed(f"Port {self._port} of this machine is in use") from None
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(10):
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                status, text = self._handle_request(head)
                page = _PAGE.format(html.escape(text)).encode()
                lines = (
                    f"HTTP/1.1 {status}",
                    "Content-Type: text/html; charset=utf-8",
                    f"Content-Length: {len(page)}",
                    "Cache-Control: no-store",
                    "Referrer-Policy: no-referrer",
                    "Content-Security-Policy: default-src 'none'",
                    "Connection: close",
                )
                writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + page)
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # not a browser
        finally:
            writer.close()

    def _handle_request(self, head: str) -> tuple[str, str]:
        method, target, *_ = [*head.split("\r\n", 1)[0].split(" "), "", ""]
        parts = urlsplit(target)
        params = dict(parse_qsl(parts.query, keep_blank_values=True))
        state = params.get("state", "").encode()
        if method != "GET" or parts.path != CALLBACK_PATH or not self.state:
            return "404 Not Found", "This page does not exist."
        if self.response_params.done() or not secrets.compare_digest(state, self.state.encode()):
            return "400 Bad Request", "This response does not belong to the current authorization."
        self.response_params.set_result(params)
        return "200 OK", "You can close this window and return to the terminal."
