"""HTTP requests to identity providers, with limits on time, size and target.

Redirects are not followed, responses are not decompressed, and their size is limited. Private addresses are allowed,
because the URL comes from the settings or from the provider's own discovery document.
"""

import asyncio
import functools
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from mcp_django.auth.external.strict_json import MalformedInput, parse_object
from mcp_django.conf.issuers import is_loopback_url

REQUEST_TIMEOUT_SECONDS: Final = 5.0
"""Time limit of a request in seconds, from the DNS look-up to the last byte."""


class ProviderUnreachable(Exception):
    """Failure of a provider to respond usefully. The message is for the log."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ProviderRequest:
    """Request to a provider; a POST if it has a `form`."""

    url: str
    max_bytes: int
    """Maximum size of the response in bytes."""
    ca_file: str | None = None
    """File of certificates to trust instead of the default ones."""
    form: Mapping[str, str] | None = None
    basic: tuple[str, str] | None = None
    """Username and password."""


async def fetch_json(provider_request: ProviderRequest) -> dict[str, Any]:
    """Send the request and return the JSON object of the response.

    Raises:
        ProviderUnreachable: no usable response; also for every status but 200.
    """
    import httpx

    try:
        async with asyncio.timeout(REQUEST_TIMEOUT_SECONDS):
            return parse_object(await _fetch_body(provider_request))
    except TimeoutError:
        raise ProviderUnreachable(f"it did not respond within {REQUEST_TIMEOUT_SECONDS:g} seconds") from None
    except MalformedInput as problem:
        raise ProviderUnreachable(f"its response is unusable: {problem}") from None
    except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as problem:
        # The exception's text could contain the request.
        raise ProviderUnreachable(f"the request failed ({type(problem).__name__})") from None


async def _fetch_body(provider_request: ProviderRequest) -> bytes:
    import httpx

    headers = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "mcp_django"}
    # Proxies and certificates of the environment are for other machines only.
    is_remote = not is_loopback_url(provider_request.url)
    ssl_context = await asyncio.to_thread(_get_ssl_context, provider_request.ca_file, is_remote)
    client = httpx.AsyncClient(verify=ssl_context, trust_env=is_remote, timeout=REQUEST_TIMEOUT_SECONDS)

    async with client:
        request = client.build_request(
            "GET" if provider_request.form is None else "POST",
            provider_request.url,
            headers=headers,
            data=provider_request.form,
        )
        auth = httpx.BasicAuth(*provider_request.basic) if provider_request.basic else None
        response = await client.send(request, auth=auth, stream=True, follow_redirects=False)

        try:
            if response.status_code != 200:
                raise ProviderUnreachable(f"it responded with status {response.status_code}")
            if response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
                raise ProviderUnreachable("its response has an encoding that was not requested")
            body = bytearray()
            async for piece in response.aiter_raw():
                body += piece
                if len(body) > provider_request.max_bytes:
                    raise ProviderUnreachable(f"its response is longer than {provider_request.max_bytes} bytes")
            return bytes(body)
        finally:
            await response.aclose()


@functools.lru_cache(16)
def _get_ssl_context(ca_file: str | None, is_remote: bool) -> ssl.SSLContext:
    # Cached, because loading the certificates takes longer than a request, and blocks.
    import httpx

    if ca_file is not None:
        return ssl.create_default_context(cafile=ca_file)
    return httpx.create_ssl_context(trust_env=is_remote)
