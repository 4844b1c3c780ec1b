"""Transport security: Host and Origin checks (DNS rebinding), and CORS headers."""

import re
from collections.abc import Sequence

from django.http.request import split_domain_port, validate_host

from mcp_django.protocol.errors import TransportRefusal
from mcp_django.protocol.headers import PARAM_PREFIX, TOKEN_PATTERN, Headers

HeaderPairs = tuple[tuple[bytes, bytes], ...]
LOOPBACK_ORIGIN = re.compile(r"https?://(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d{1,5})?")
MAX_CACHED_VERDICTS, MAX_CACHED_HEADER_BYTES = 1024, 256
"""Maximum number of cached verdicts, and maximum bytes of their headers."""
EXPOSED_HEADERS = b"Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate, Retry-After"
ALLOWED_HEADERS = (
    b"Accept, Authorization, Content-Type, Last-Event-ID, Mcp-Method, Mcp-Name, MCP-Protocol-Version, Mcp-Session-Id, "
    b"traceparent, tracestate"
)
_PARAM_PREFIX = PARAM_PREFIX.decode()


class TransportSecurity:
    """Checks Host against ALLOWED_HOSTS and Origin against trusted origins.

    Clients other than browsers send no Origin and pass.
    """

    def __init__(
        self,
        *,
        hosts: Sequence[str],
        trusted_origins: Sequence[str],
        cors_origins: Sequence[str],
        development: bool = False,
    ) -> None:
        """Set the allowed hosts and origins.

        `trusted_origins` may send requests; `*.` covers subdomains as in CSRF_TRUSTED_ORIGINS. `cors_origins` may also
        read the answers. So may pages from loopback in `development`.
        """
        self._is_development = development
        self._hosts = list(hosts)
        self._trusted_origins = [_compile_origin(origin) for origin in (*trusted_origins, *cors_origins)]
        self._cors_origins = [_compile_origin(origin) for origin in cors_origins]
        self._verdicts: dict[tuple[bytes | None, bytes | None], bool] = {}

    def check(self, headers: Headers) -> None:
        """Raise TransportRefusal (403) unless Host and Origin are allowed.

        Servers MUST validate Origin (basic/transports).
        """
        key = headers.wire.get(b"host"), headers.wire.get(b"origin")
        is_allowed = self._verdicts.get(key)
        if is_allowed is None:
            is_allowed = self._is_host_allowed(key[0]) and self._is_origin_allowed(key[1], key[0])
            if len(key[0] or b"") + len(key[1] or b"") <= MAX_CACHED_HEADER_BYTES:
                if len(self._verdicts) >= MAX_CACHED_VERDICTS:
                    self._verdicts.clear()
                self._verdicts[key] = is_allowed
        if not is_allowed or (headers.repeated and not headers.repeated.isdisjoint((b"host", b"origin"))):
            raise TransportRefusal(403, body=b"The Host or Origin of this request is not allowed.")

    def build_cors_headers(self, headers: Headers) -> HeaderPairs:
        """Build the CORS headers of an answer."""
        origin = headers.wire.get(b"origin")
        if origin is None:
            return ()
        vary = (b"vary", b"Origin")
        if not self._is_cors_allowed(origin):
            return (vary,)
        return ((b"access-control-allow-origin", origin), (b"access-control-expose-headers", EXPOSED_HEADERS), vary)

    def build_preflight_headers(self, headers: Headers, methods: bytes) -> HeaderPairs:
        """Build the headers of the answer to OPTIONS.

        It is sent before authentication, because a preflight cannot carry credentials.
        """
        requested_headers = headers.wire.get(b"access-control-request-headers", b"").decode("latin-1").lower()
        params = sorted(
            name
            for name in map(str.strip, requested_headers.split(","))
            if name.startswith(_PARAM_PREFIX) and TOKEN_PATTERN.fullmatch(name.removeprefix(_PARAM_PREFIX))
        )
        allowed = b", ".join([ALLOWED_HEADERS, *(name.encode() for name in params)])
        cors = self.build_cors_headers(headers)
        if len(cors) < 2:
            return (*cors, (b"allow", methods))

        return (
            *cors,
            (b"allow", methods),
            (b"access-control-allow-methods", methods),
            (b"access-control-allow-headers", allowed),
            (b"access-control-max-age", b"600"),
        )

    def _is_host_allowed(self, host: bytes | None) -> bool:
        if host is None:
            return False
        domain, _ = split_domain_port(host.decode("latin-1"))
        return bool(domain) and validate_host(domain, self._hosts)

    def _is_origin_allowed(self, origin: bytes | None, host: bytes | None) -> bool:
        if origin is None:
            return True
        text = origin.decode("latin-1")
        same = host is not None and text.partition("://")[2] == host.decode("latin-1")
        return (
            same
            or LOOPBACK_ORIGIN.fullmatch(text) is not None
            or any(match.fullmatch(text) for match in self._trusted_origins)
        )

    def _is_cors_allowed(self, origin: bytes) -> bool:
        text = origin.decode("latin-1")
        local = self._is_development and LOOPBACK_ORIGIN.fullmatch(text) is not None
        return local or any(match.fullmatch(text) for match in self._cors_origins)


def _compile_origin(origin: str) -> re.Pattern[str]:
    scheme, _, host = origin.rpartition("://")
    prefix = re.escape(scheme) + "://"
    if host.startswith("*."):
        # As in CSRF_TRUSTED_ORIGINS, the wildcard includes the domain itself.
        return re.compile(prefix + r"([A-Za-z0-9-]+\.)*" + re.escape(host[2:]))
    return re.compile(prefix + re.escape(host))
