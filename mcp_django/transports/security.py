"""Transport security: Host and Origin checks (DNS rebinding), and CORS headers."""

import re
from collections.abc import Sequence

from django.http.request import split_domain_port, validate_host

from mcp_django.protocol.errors import TransportRefusal
from mcp_django.protocol.headers import PARAM_PREFIX, TOKEN, Headers

Pairs = tuple[tuple[bytes, bytes], ...]
LOOPBACK_ORIGIN = re.compile(r"https?://(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d{1,5})?")
KNOWN, KNOWN_LENGTH = 1024, 256
"""Maximum number of cached verdicts, and maximum bytes of their headers."""
EXPOSED = b"Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate, Retry-After"
ALLOWED = (
    b"Accept, Authorization, Content-Type, Last-Event-ID, Mcp-Method, Mcp-Name, MCP-Protocol-Version, Mcp-Session-Id, "
    b"traceparent, tracestate"
)
_PARAM = PARAM_PREFIX.decode()


class Guard:
    """Checks Host against ALLOWED_HOSTS and Origin against trusted origins.

    Clients other than browsers send no Origin and pass.
    """

    def __init__(
        self, *, hosts: Sequence[str], trusted: Sequence[str], readers: Sequence[str], development: bool = False
    ) -> None:
        """Set the allowed hosts and origins.

        `trusted_origins` may send requests; `*.` covers subdomains as in CSRF_TRUSTED_ORIGINS. `cors_origins` may also
        read the answers. So may pages from loopback in `development`.
        """
        self._development = development
        self._hosts = list(hosts)
        self._trusted = [_matcher(origin) for origin in (*trusted, *readers)]
        self._readers = [_matcher(origin) for origin in readers]
        self._verdicts: dict[tuple[bytes | None, bytes | None], bool] = {}

    def check(self, headers: Headers) -> None:
        """Raise TransportRefusal (403) unless Host and Origin are allowed.

        Servers MUST validate Origin (basic/transports).
        """
        key = headers.get(b"host"), headers.get(b"origin")
        verdict = self._verdicts.get(key)
        if verdict is None:
            verdict = self._host(key[0]) and self._origin(key[1], key[0])
            if len(key[0] or b"") + len(key[1] or b"") <= KNOWN_LENGTH:
                if len(self._verdicts) >= KNOWN:
                    self._verdicts.clear()
                self._verdicts[key] = verdict
        if not verdict or (headers.repeated and not headers.repeated.isdisjoint((b"host", b"origin"))):
            raise TransportRefusal(403, body=b"The Host or Origin of this request is not allowed.")

    def cors(self, headers: Headers) -> Pairs:
        """Build the CORS headers of an answer."""
        origin = headers.get(b"origin")
        if origin is None:
            return ()
        vary = (b"vary", b"Origin")
        if not self._reads(origin):
            return (vary,)
        return ((b"access-control-allow-origin", origin), (b"access-control-expose-headers", EXPOSED), vary)

    def preflight(self, headers: Headers, methods: bytes) -> Pairs:
        """Build the headers of the answer to OPTIONS.

        It is sent before authentication, because a preflight cannot carry credentials.
        """
        asked = headers.get(b"access-control-request-headers", b"").decode("latin-1").lower()
        params = sorted(
            name
            for name in map(str.strip, asked.split(","))
            if name.startswith(_PARAM) and TOKEN.fullmatch(name.removeprefix(_PARAM))
        )
        allowed = b", ".join([ALLOWED, *(name.encode() for name in params)])
        cors = self.cors(headers)
        if len(cors) < 2:
            return (*cors, (b"allow", methods))

        return (
            *cors,
            (b"allow", methods),
            (b"access-control-allow-methods", methods),
            (b"access-control-allow-headers", allowed),
            (b"access-control-max-age", b"600"),
        )

    def _host(self, host: bytes | None) -> bool:
        if host is None:
            return False
        domain, _ = split_domain_port(host.decode("latin-1"))
        return bool(domain) and validate_host(domain, self._hosts)

    def _origin(self, origin: bytes | None, host: bytes | None) -> bool:
        if origin is None:
            return True
        text = origin.decode("latin-1")
        same = host is not None and text.partition("://")[2] == host.decode("latin-1")
        return (
            same or LOOPBACK_ORIGIN.fullmatch(text) is not None or any(match.fullmatch(text) for match in self._trusted)
        )

    def _reads(self, origin: bytes) -> bool:
        text = origin.decode("latin-1")
        local = self._development and LOOPBACK_ORIGIN.fullmatch(text) is not None
        return local or any(match.fullmatch(text) for match in self._readers)


def _matcher(origin: str) -> re.Pattern[str]:
    scheme, _, host = origin.rpartition("://")
    prefix = re.escape(scheme) + "://"
    if host.startswith("*."):
        # As in CSRF_TRUSTED_ORIGINS, the wildcard includes the domain itself.
        return re.compile(prefix + r"([A-Za-z0-9-]+\.)*" + re.escape(host[2:]))
    return re.compile(prefix + re.escape(host))
