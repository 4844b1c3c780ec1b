"""Web pages of other servers as resources."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Unpack
from urllib.parse import quote

from mcp_django.protocol.errors import InternalError
from mcp_django.providers.files.patterns import DEPTH, TooLarge, is_name
from mcp_django.providers.media_types import contents_of, guessed
from mcp_django.providers.metadata import MAX_SIZE, Declared, declared, reading, resource_at, template_below
from mcp_django.providers.safe_fetch import Failed, Fetcher, Refused
from mcp_django.schema import DeclarationError
from mcp_django.server.composition.provider import Provider
from mcp_django.server.context.context import Context
from mcp_django.server.primitives.base import Resource, ResourceTemplate

logger = logging.getLogger("mcp_django.providers")
ABSENT = frozenset({404, 410})
_PLAIN = "/!$&'()*+,;=:@~"


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
        max_size: int = MAX_SIZE,
        **options: Unpack[Declared],
    ) -> None:
        """Validate the options. Raises DeclarationError for an invalid URL, URI or option."""
        self._source = _Source(
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
        self._url, self._mime_type = url, mime_type
        self._resource = resource_at(
            type(self), uri, self._read, name=name or uri, mime_type=mime_type, **declared(type(self), options)
        )

    async def resources(self, ctx: Context) -> Iterable[Resource]:
        return [self._resource]

    async def _read(self) -> Any:
        return await self._source.read(self._url, self._mime_type)


class HTTPProvider(Provider):
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
        max_size: int = MAX_SIZE,
        **options: Unpack[Declared],
    ) -> None:
        """Validate the options. Raises DeclarationError."""
        if isinstance(paths, str) or not all(map(_is_path, paths)):
            raise DeclarationError(f"{type(self).__name__}: paths is a list of relative paths")
        if not base_url.endswith("/") or "?" in base_url or "#" in base_url:
            raise DeclarationError(f"{type(self).__name__}: base_url must end with a slash, without query and fragment")

        self._source = _Source(
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
        self._base_url, self.uri_prefix = base_url, uri_prefix
        common = declared(type(self), options)
        self._template = ResourceTemplate(
            **{"description": "A page, by its path.", **common},
            name=uri_prefix,
            template=template_below(type(self), uri_prefix),
            convert=lambda variables: variables,
            handler=reading(self._read),
            source=type(self).__name__,
        )
        self._common = {name: value for name, value in common.items() if name not in ("title", "description")}
        self._listed = {path: self._resource(path) for path in paths}
        self._only_listed = only_listed

    async def resources(self, ctx: Context) -> Iterable[Resource]:
        return list(self._listed.values())

    async def templates(self, ctx: Context) -> Iterable[ResourceTemplate]:
        return () if self._only_listed else [self._template]

    async def resource(self, uri: str, ctx: Context) -> Resource | None:
        variables = self._template.template.match(uri)
        path = "" if variables is None else str(variables["path"])
        listed = self._listed.get(path)
        if listed is not None or self._only_listed or not _is_path(path):
            return listed
        return self._resource(path)

    def _resource(self, path: str) -> Resource:
        async def read() -> Any:
            return await self._read(path)

        return Resource(
            **self._common,
            uri=self.uri_prefix + quote(path, safe=_PLAIN),
            name=path,
            mime_type=guessed(path),
            handler=reading(read),
            source=type(self).__name__,
        )

    async def _read(self, path: str) -> Any:
        return await self._source.read(self._base_url + quote(path, safe=_PLAIN), None)


class _Source:
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
            host = Fetcher.host_of(url)
            self._fetcher = Fetcher(allowed_hosts=[host, *allowed_hosts], **limits)
            self._fetcher.check(url)
        except (Refused, ValueError) as problem:
            raise DeclarationError(f"{owner.__name__}: the URL cannot be served, because {problem}") from None

    async def read(self, url: str, mime_type: str | None) -> Any:
        """Fetch a URL and return its contents; None if it is absent.

        Raises InternalError, with a text without the URL.
        """
        try:
            found = await self._fetcher.fetch(url, self._headers)
        except TooLarge as problem:
            raise InternalError(f"The resource is larger than {problem} bytes, which is the limit") from None
        except (Refused, Failed) as problem:
            logger.warning("A resource could not be fetched, because %s", problem, exc_info=problem.__cause__)
            raise InternalError(f"The resource could not be fetched, because {problem}") from None

        if found.status in ABSENT:
            return None
        if not 200 <= found.status < 300:
            logger.warning("A resource could not be fetched: the status is %d", found.status)
            raise InternalError(f"The resource could not be fetched, because its server answered {found.status}")

        mime_type = mime_type or found.mime_type
        return contents_of(found.body, mime_type, found.charset)


def _is_path(path: str) -> bool:
    """Return True for a path below the base, with or without a trailing slash."""
    parts = path.removesuffix("/").split("/")
    return len(parts) <= DEPTH and all(map(is_name, parts))
