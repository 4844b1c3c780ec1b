"""Requests to the URLs of identity providers, which the operator wrote down: bounded, and to nowhere else.

No redirect is followed, nothing is unpacked, and a body may be only so long. Private addresses are allowed: the URL
comes from the settings, or from the provider's own discovery document.
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
"""Seconds for all of it, from the name's look-up to the last byte."""


class Unreachable(Exception):
    """There is no answer that can be used. The text says why, for the log."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Ask:
    """One request. With a `form` it is a POST of that form."""

    url: str
    most: int
    """Bytes that the answer may have."""
    ca_file: str | None = None
    """Certificates to trust instead of the usual ones."""
    form: Mapping[str, str] | None = None
    basic: tuple[str, str] | None = None
    """Name and password."""


async def ask(what: Ask) -> dict[str, Any]:
    """The JSON object that is answered. Raises Unreachable, also for each status but 200."""
    import httpx

    try:
        async with asyncio.timeout(TIMEOUT):
            return read_object(await _body(what))
    except TimeoutError:
        raise Unreachable(f"it did not answer within {TIMEOUT:g} seconds") from None
    except Malformed as problem:
        raise Unreachable(f"its answer cannot be used: {problem}") from None
    except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as problem:
        # The text of the exception could name what was sent.
        raise Unreachable(f"it cannot be asked ({type(problem).__name__})") from None


async def _body(what: Ask) -> bytes:
    import httpx

    headers = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "mcp_django"}
    # What proxies and certificates the environment names hold for others, not for this machine.
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
                raise Unreachable(f"it answered {response.status_code}")
            if response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
                raise Unreachable("its answer is in an encoding that was not asked for")
            found = bytearray()
            async for piece in response.aiter_raw():
                found += piece
                if len(found) > what.most:
                    raise Unreachable(f"its answer is longer than {what.most} bytes")
            return bytes(found)
        finally:
            await response.aclose()


@functools.lru_cache(16)
def _trusted(ca_file: str | None, outside: bool) -> ssl.SSLContext:
    # Kept, because reading the certificates takes longer than a request; it blocks.
    import httpx

    if ca_file is not None:
        return ssl.create_default_context(cafile=ca_file)
    return httpx.create_ssl_context(trust_env=outside)
