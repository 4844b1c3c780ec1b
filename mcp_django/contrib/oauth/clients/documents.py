"""Client ID Metadata Documents: a `client_id` that is the URL of what describes the client
(draft-ietf-oauth-client-id-metadata-document; MCP basic/authorization, Client ID Metadata Documents).

The URL is a stranger's, so it is fetched with `providers.fetching`, as resources are: one resolution, public addresses
only, the connection to the address that was checked, no redirects, bounded time and bytes. django-oauth-toolkit has a
fetcher as well, which is not used, nor is anything of its module: it takes any port, addresses that lead inwards, and
none of the documents of claude.ai, ChatGPT and VS Code, and it is reached from endpoints where nobody has logged in.

Here is what a URL has to be, what is fetched, and for how long it is good. Rows are `document_clients`' business.
"""

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import unquote, urlsplit

from mcp_django.contrib.oauth.clients.client_metadata import (
    MOST_BYTES,
    ClientMetadata,
    Refused,
    read_document,
    read_json,
)
from mcp_django.providers.files.patterns import TooLarge
from mcp_django.providers.safe_fetch import Failed, Fetched, Fetcher
from mcp_django.providers.safe_fetch import Refused as NotFetched

MOST_URL = 255
"""Characters of a URL: what the toolkit's column for a client's id holds."""
TIMEOUT = 5.0
"""Seconds for all of a fetch: a browser waits meanwhile."""
SHORTEST, UNSAID, LONGEST = 5 * 60, 60 * 60, 24 * 60 * 60
"""Seconds for which a document is good: at least, when it does not say, at most."""
_URL = re.compile(r"https://[\x21-\x7e]+", re.ASCII)
_HOST = re.compile(r"(?:[a-z0-9](?:[a-z0-9\-]{0,61}[a-z0-9])?\.)+[a-z0-9](?:[a-z0-9\-]{0,61}[a-z0-9])?", re.ASCII)
_PATH = re.compile(r"(?:/(?:[A-Za-z0-9\-._~!$&'()*+,;=:@]|%[0-9A-Fa-f]{2})*)+", re.ASCII)
_MAX_AGE = re.compile(r"(?:^|[,\s])max-age\s*=\s*\"?(\d{1,10})", re.ASCII | re.IGNORECASE)
_NOT_KEPT = re.compile(r"(?:^|[,\s])no-(?:store|cache)\b", re.ASCII | re.IGNORECASE)
_HEADERS: Mapping[str, str] = {"Accept": "application/json, application/*+json"}


@dataclass(frozen=True, slots=True)
class Document:
    """A document that was read."""

    metadata: ClientMetadata
    digest: str
    """SHA-256 of its bytes, 64 hexadecimal digits."""
    seconds: int
    """For how long it is good."""


def is_document_url(client_id: str) -> bool:
    """Is this the id of a client that is described by a document, so that no other may have it?"""
    return client_id[:8].lower() == "https://"


def problem_with(url: str) -> str | None:
    """Say why a URL cannot be a client's id; None when it can.

    The rules of section 3 of the draft, and narrower where one document could have two URLs, or the URL something else
    to say: a host with a name, port 443, no query.
    """
    if len(url) > MOST_URL:
        return f"it has more than {MOST_URL} characters"
    if not _URL.fullmatch(url) or "\\" in url:
        return "it is not an https URL in ASCII"
    if "#" in url or "?" in url:
        return "it has a query or a fragment"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return "it is malformed"
    if parts.netloc != host + ("" if port is None else f":{port}") or not _HOST.fullmatch(host) or _is_address(host):
        return "its host is not a name in small letters, or there is a login"
    if port not in (None, 443):
        return "its port is not 443"
    if parts.path in ("", "/") or not _PATH.fullmatch(parts.path):
        return "it has no path"
    if any(segment in (".", "..") for segment in unquote(parts.path).split("/")):
        return "its path has dot segments"
    return None


def make_fetcher(hosts: Sequence[str] | None) -> Fetcher:
    """What fetches documents; from `hosts` only, if that is not None."""
    return Fetcher(allowed_hosts=hosts, timeout=TIMEOUT, max_size=MOST_BYTES)


async def fetch(url: str, fetcher: Fetcher, *, schemes: Collection[str]) -> Document:
    """The document at a URL. `schemes` are the private-use schemes for redirects. Raises Refused, whatever is wrong;
    its text is for the log and for operators.
    """
    if problem := problem_with(url):
        raise Refused(problem)
    try:
        found = await fetcher.fetch(url, _HEADERS)
    except (Failed, NotFetched) as problem_found:
        raise Refused(f"the document was not fetched: {problem_found}") from problem_found
    except TooLarge:
        raise Refused(f"the document has more than {MOST_BYTES} bytes") from None
    return read(url, found, schemes=schemes)


def read(url: str, found: Fetched, *, schemes: Collection[str]) -> Document:
    """The document in a response. Raises Refused."""
    if found.status != 200:
        raise Refused(f"the document was answered with status {found.status}")
    kind = found.mime_type or ""
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise Refused("the document is not called JSON by its content type")
    return read_bytes(url, found.body, schemes=schemes, seconds=lifetime(found.cache_control))


def read_bytes(url: str, body: bytes, *, schemes: Collection[str], seconds: int = LONGEST) -> Document:
    """The document that the bytes are. Raises Refused."""
    metadata = read_document(read_json(body), url=url, schemes=schemes)
    return Document(metadata, hashlib.sha256(body).hexdigest(), seconds)


def lifetime(cache_control: str) -> int:
    """For how many seconds a document is good, by its Cache-Control (RFC 9111, section 5.2.2), within bounds: its
    author may neither have it fetched for each request nor keep it for ever.
    """
    if _NOT_KEPT.search(cache_control):
        return SHORTEST
    said = _MAX_AGE.search(cache_control)
    return max(SHORTEST, min(int(said[1]) if said else UNSAID, LONGEST))


def _is_address(host: str) -> bool:
    """Is it an address, also in one of the spellings that resolvers take (`1.2`, `0x7f.1`)? No top-level domain is a
    number.
    """
    try:
        ip_address(host)
    except ValueError:
        return bool(re.fullmatch(r"[0-9]+|0x[0-9a-f]*", host.rpartition(".")[2]))
    return True
