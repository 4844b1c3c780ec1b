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

from mcp_django.auth.external.strict_json import Malformed, read_object
from mcp_django.conf.issuers import is_loopback_url

TIMEOUT: Final = 5.0
"""Time limit of a request in seconds, from the DNS look-up to the last byte."""


class Unreachable(Exception):
    """Failure of a provider to respond usefully. The message is for the log."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Ask:
    """Request to a provider; a POST if it has a `form`."""

    url: str
    most: int
    """Maximum size of the response in bytes."""
    ca_file: str | None = None
    """File of certificates to trust instead of the default ones."""
    form: Mapping[str, str] | None = None
    basic: tuple[str, str] | None = None
    """Username and password."""


async def ask(what: Ask) -> dict[str, Any]:
    """Send the request and return the JSON object of the response.

    Raises:
        ProviderUnreachable: no usable response; also for every status but 200.
    """
    import httpx

    try:
        async with asyncio.timeout(TIMEOUT):
            return read_object(await _body(what))
    except TimeoutError:
        raise Unreachable(f"it did not respond within {TIMEOUT:g} seconds") from None
    except Malformed as problem:
        raise Unreachable(f"its response is unusable: {problem}") from None
    except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as problem:
        # The exception's text could contain the request.
        raise Unreachable(f"the request failed ({type(problem).__name__})") from None


async def _body(what: Ask) -> bytes:
    import httpx

    headers = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "mcp_django"}
    # Proxies and certificates of the environment are for other machines only.
    outside = not is_loopback_url(what.url)
    trusted = await asyncio.to_thread(_trusted, what.ca_file, outside)
    client = httpx.AsyncClient(verify=trusted, trust_env=outside, timeout=TIMEOUT)

    async with client:
        request = client.build_request(
            "GET" if what.form is None else "POST", what.url, headers=headers, data=what.form
        )
        auth = httpx.BasicAuth(*what.basic) if what.basic else None
        response = await client.send(request, auth=auth, stream=True, follow_redirects=False)

        try:
            if response.status_code != 200:
                raise Unreachable(f"it responded with status {response.status_code}")
            if response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
                raise Unreachable("its response has an encoding that was not requested")
            found = bytearray()
            async for piece in response.aiter_raw():
                found += piece
                if len(found) > what.most:
                    raise Unreachable(f"its response is longer than {what.most} bytes")
            return bytes(found)
        finally:
            await response.aclose()


@functools.lru_cache(16)
def _trusted(ca_file: str | None, outside: bool) -> ssl.SSLContext:
    # Cached, because loading the certificates takes longer than a request, and blocks.
    import httpx

    if ca_file is not None:
        return ssl.create_default_context(cafile=ca_file)
    return httpx.create_ssl_context(trust_env=outside)
