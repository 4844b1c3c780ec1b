"""Web pages of other servers as resources."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Unpack

from mcp_django.protocol.errors import InternalError
from mcp_django.protocol.log_text import get_logger
from mcp_django.protocol.uri import quote_path
from mcp_django.providers.files.patterns import MAX_PATH_DEPTH, ContentTooLarge, is_safe_name
from mcp_django.providers.media_types import build_contents
from mcp_django.providers.metadata import (
    DEFAULT_MAX_BYTES,
    PathProvider,
    ProvidedResourceOptions,
    build_static_resource,
    check_options,
)
from mcp_django.providers.safe_fetch import Fetcher, FetchFailed, FetchRefused
from mcp_django.schema import DeclarationError
from mcp_django.server.composition.provider import Provider
from mcp_django.server.context.context import Context
from mcp_django.server.primitives.base import Resource, ResourceTemplate

logger = get_logger("mcp_django.providers")
ABSENT_STATUSES = frozenset({404, 410})


class HTTPResource(Provider):
    """A single URL at one URI, fetched at each read on the event loop.

    `headers` are sent with the request, and never to another origin. Only `https` URLs whose host has public addresses
    alone are fetched, unless `http` and `private` permit more. At most `redirects` redirects are followed, to the same
    host or to `allowed_hosts` (`".example.com"` includes subdomains). `timeout` is the total in seconds, `max_size` the
    maximum bytes of the decoded body.
    """

    offers = frozenset({"resources"})

    def __init__(
        self,
        url: str,
        uri: str,
        *,
        name: str | None = None,
        mime_type: str | None = None,
        headers: Mapping[str, str] | None = None,
        allowed_hosts: Sequence[str] = (),
        private: bool = False,
        http: bool = False,
        redirects: int = 0,
        timeout: float = 10.0,
        max_size: int = DEFAULT_MAX_BYTES,
        **options: Unpack[ProvidedResourceOptions],
    ) -> None:
        """Validate the options. Raises DeclarationError for an invalid URL, URI or option."""
        self._source = _HTTPSource(
            type(self),
            url,
            headers,
            allowed_hosts=allowed_hosts,
            private=private,
            http=http,
            redirects=redirects,
            timeout=timeout,
            max_size=max_size,
        )
        self._url = url
        self._mime_type = mime_type
        self._resource = build_static_resource(
            type(self), uri, self._read, name=name or uri, mime_type=mime_type, **check_options(type(self), options)
        )

    async def resources(self, ctx: Context) -> Iterable[Resource]:
        return [self._resource]

    async def _read(self) -> Any:
        return await self._source.read(self._url, self._mime_type)


class HTTPProvider(PathProvider):
    """The pages below one URL: `uri_prefix` + path maps to `base_url` + path.

    `paths` are listed. With `only_listed` no other paths are served. Otherwise callers with permission can read every
    path below `base_url`. The options are those of HTTPResource.
    """

    offers = frozenset({"resources"})

    def __init__(
        self,
        base_url: str,
        *,
        uri_prefix: str,
        paths: Sequence[str] = (),
        only_listed: bool = False,
        headers: Mapping[str, str] | None = None,
        allowed_hosts: Sequence[str] = (),
        private: bool = False,
        http: bool = False,
        redirects: int = 0,
        timeout: float = 10.0,
        max_size: int = DEFAULT_MAX_BYTES,
        **options: Unpack[ProvidedResourceOptions],
    ) -> None:
        """Validate the options. Raises DeclarationError."""
        if isinstance(paths, str) or not all(map(_is_relative_path, paths)):
            raise DeclarationError(f"{type(self).__name__}: paths is a list of relative paths")
        if not base_url.endswith("/") or "?" in base_url or "#" in base_url:
            raise DeclarationError(f"{type(self).__name__}: base_url must end with a slash, without query and fragment")

        self._source = _HTTPSource(
            type(self),
            base_url,
            headers,
            allowed_hosts=allowed_hosts,
            private=private,
            http=http,
            redirects=redirects,
            timeout=timeout,
            max_size=max_size,
        )
        self._base_url = base_url
        super().__init__(uri_prefix, self._read, options, description="A page, by its path.")
        self._listed = {path: self._build_path_resource(path) for path in paths}
        self._only_listed = only_listed

    async def resources(self, ctx: Context) -> Iterable[Resource]:
        return list(self._listed.values())

    async def templates(self, ctx: Context) -> Iterable[ResourceTemplate]:
        return () if self._only_listed else await super().templates(ctx)

    async def resource(self, uri: str, ctx: Context) -> Resource | None:
        path = self._match_path(uri) or ""
        listed = self._listed.get(path)
        if listed is not None or self._only_listed or not _is_relative_path(path):
            return listed
        return self._build_path_resource(path)

    async def _read(self, path: str) -> Any:
        return await self._source.read(self._base_url + quote_path(path), None)


class _HTTPSource:
    """An origin and the settings of its requests."""

    def __init__(
        self,
        owner: type,
        url: str,
        headers: Mapping[str, str] | None,
        *,
        allowed_hosts: Sequence[str],
        **limits: Any,
    ) -> None:
        self._headers = dict(headers or {})
        if isinstance(allowed_hosts, str):
            raise DeclarationError(f"{owner.__name__}: allowed_hosts is a list; write [{allowed_hosts!r}]")
        try:
            host = Fetcher.get_host(url)
            self._fetcher = Fetcher(allowed_hosts=[host, *allowed_hosts], **limits)
            self._fetcher.check_url(url)
        except (FetchRefused, ValueError) as problem:
            raise DeclarationError(f"{owner.__name__}: the URL cannot be served, because {problem}") from None

    async def read(self, url: str, mime_type: str | None) -> Any:
        """Fetch a URL and return its contents; None if it is absent.

        Raises InternalError, with a text without the URL.
        """
        try:
            response = await self._fetcher.fetch(url, self._headers)
        except ContentTooLarge as error:
            raise InternalError(f"The resource is larger than {error} bytes, which is the limit") from None
        except (FetchRefused, FetchFailed) as error:
            logger.warning("A resource could not be fetched, because %s", error, exc_info=error.__cause__)
            raise InternalError(f"The resource could not be fetched, because {error}") from None

        if response.status in ABSENT_STATUSES:
            return None
        if not 200 <= response.status < 300:
            logger.warning("A resource could not be fetched: the status is %d", response.status)
            raise InternalError(f"The resource could not be fetched, because its server answered {response.status}")

        mime_type = mime_type or response.mime_type
        return build_contents(response.body, mime_type, response.charset)


def _is_relative_path(path: str) -> bool:
    """Return True for a path below the base, with or without a trailing slash."""
    parts = path.removesuffix("/").split("/")
    return len(parts) <= MAX_PATH_DEPTH and all(map(is_safe_name, parts))
