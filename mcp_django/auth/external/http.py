"""HTTP requests to identity providers.

Redirects are not followed, and responses are not decompressed. Private addresses are allowed, because the URL comes
from the settings or from the provider's own discovery document.
"""

from collections.abc import Mapping
from typing import Any, Final

from mcp_django.auth.external.strict_json import MalformedInput, parse_object
from mcp_django.conf.issuers import is_loopback_url
from mcp_django.http_client import RequestFailed, RequestPolicy, RequestProblem, SafeHTTPClient, connect_directly

REQUEST_TIMEOUT_SECONDS: Final = 5.0
"""Time limit of a request in seconds, from the DNS look-up to the last byte."""


class ProviderUnreachable(Exception):
    """Failure of a provider to respond usefully. The message is for the log."""


async def fetch_json(
    url: str,
    *,
    max_bytes: int,
    ca_file: str | None = None,
    form: Mapping[str, str] | None = None,
    basic: tuple[str, str] | None = None,
) -> dict[str, Any]:
    """Request a URL and return the JSON object of the response.

    A `form` is sent with POST. `max_bytes` limits the response. `ca_file` holds certificates to trust instead of the
    default ones. `basic` is a username with a password.

    Raises:
        ProviderUnreachable: no usable response; also for every status but 200.
    """
    # Proxies and certificates of the environment are for other machines only.
    connect = connect_directly(ca_file=ca_file, trust_env=not is_loopback_url(url), basic=basic)
    policy = RequestPolicy(timeout=REQUEST_TIMEOUT_SECONDS, max_bytes=max_bytes, returns_last_redirect=True)
    method, headers = "GET" if form is None else "POST", {"Accept": "application/json"}
    try:
        response = await SafeHTTPClient(policy, connect=connect).send(method, url, headers=headers, form=form)
        if response.status != 200:
            raise ProviderUnreachable(f"it responded with status {response.status}")
        return parse_object(response.body)
    except RequestFailed as problem:
        kind = f" ({type(problem.__cause__).__name__})" if problem.problem is RequestProblem.CONNECTION else ""
        raise ProviderUnreachable(f"{problem}{kind}") from None
    except MalformedInput as problem:
        raise ProviderUnreachable(f"its response is unusable: {problem}") from None
