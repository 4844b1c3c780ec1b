"""Registry of the project's servers as protected resources."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, cast
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured
from django.urls import NoReverseMatch, Resolver404, get_resolver, get_script_prefix, resolve, reverse
from django.urls.resolvers import RoutePattern
from django.utils.module_loading import import_string

from mcp_django import conf
from mcp_django.auth.requests import AuthRequest
from mcp_django.auth.resource import MAX_URI_CHARS, ProtectedResource, canonicalize_url
from mcp_django.conf.options import ServerSettings
from mcp_django.conf.readers import DOCUMENT_URL_PATTERN, ISSUER_URL_PATTERN
from mcp_django.models.token import check_scopes
from mcp_django.protocol.headers import Headers

WELL_KNOWN_PATH: Final = "/.well-known/oauth-protected-resource"
"""Path between the origin and the path of a resource (RFC 9728, section 3.1)."""
APP_NAME: Final = "mcp_django"
_DEFAULT_SETTINGS = ServerSettings()
_NO_HEADERS = Headers()
AUTHORIZATION_SERVER_SCOPES: Final = frozenset({"offline_access"})
"""Scopes between the client and its authorization server.

See MCP, basic/authorization, refresh tokens.
"""


class ResourceRegistry:
    """The protected resource of each server.

    A resource depends on the request where its path has parameters or its settings name functions.
    """

    def __init__(
        self, servers: Mapping[str, ServerSettings], *, origin: str | None, issuers: Sequence[str] = ()
    ) -> None:
        """`origin` is the project's own, such as "https://example.com".

        `issuers` are the default authorization servers.
        """
        self._servers = servers
        self._origin = origin
        self._issuers = tuple(issuers)
        self._paths: dict[str, str] = {}
        self._cache: dict[tuple[str, Any], ProtectedResource] = {}

    @property
    def origin(self) -> str | None:
        """Origin of the project."""
        return self._origin

    @property
    def aliases(self) -> Sequence[str]:
        """Aliases of all servers."""
        return [*self._servers, *(alias for alias in self._paths if alias not in self._servers)]

    def set_path(self, alias: str, path: str) -> None:
        """Set the path of a server that has no setting.

        The path is a pattern such as "mcp", below the project's prefix.
        """
        self._paths[alias] = path
        self._cache.clear()

    def varies_by_request(self, alias: str) -> bool:
        """Return True if the resource depends on the request."""
        server = self._servers.get(alias, _DEFAULT_SETTINGS)
        options = (server.required_scopes, server.authorization_servers, server.resource_metadata_url)
        return any(map(_is_function_path, options)) or self._has_path_parameters(alias)

    def get(self, alias: str, request: AuthRequest | None = None) -> ProtectedResource:
        """Return the resource of the server `alias`, for `request` if it depends on one.

        Exceptions of a project's function propagate.

        Raises:
            ImproperlyConfigured: a project's function returned an invalid value.
        """
        key = alias, conf.root_urlconf()
        resource = self._cache.get(key)
        if resource is None:
            resource = self._build(alias, request)
            if not self.varies_by_request(alias):
                self._cache[key] = resource
        return resource

    def iter_static_resources(self) -> Iterator[ProtectedResource]:
        """Yield the resources that are the same for every request."""
        return (self.get(alias) for alias in self.aliases if not self.varies_by_request(alias))

    def _build(self, alias: str, request: AuthRequest | None) -> ProtectedResource:
        server = self._servers.get(alias, _DEFAULT_SETTINGS)
        uri = server.resource or self._build_uri(alias, request)
        metadata = _resolve_option(server.resource_metadata_url, request)
        issuers = _resolve_option(server.authorization_servers, request)
        scopes = _resolve_option(server.required_scopes, request) or ()
        # Metadata is only of use with an authorization server.
        has_issuers = bool(self._issuers if issuers is None else issuers)
        default_url = metadata_url(uri) if has_issuers else None
        return ProtectedResource(
            server=alias,
            uri=canonicalize_url(uri),
            scopes=_validate_scopes(alias, scopes),
            authorization_servers=self._issuers if issuers is None else _validate_issuers(alias, issuers),
            metadata_url=default_url if metadata is None else _validate_metadata_url(alias, metadata),
        )

    def _build_uri(self, alias: str, request: AuthRequest | None) -> str | None:
        if self._origin is None:
            return None
        path = self.build_path(alias, None if request is None else request.kwargs)
        return None if path is None else self._origin + path

    def build_path(self, alias: str, kwargs: Mapping[str, Any] | None) -> str | None:
        """Return the path of an endpoint, with the project's prefix, or None.

        None while its parameters are unknown, and for parameters of an include that the URL name does not resolve to.
        Tokens cannot be issued for such a URL.
        """
        prefix = conf.force_script_name().rstrip("/")
        if alias not in self._paths and conf.root_urlconf() is not None:
            try:
                url = reverse(f"{APP_NAME}:{alias}", kwargs=dict(kwargs) if kwargs else None)
                return f"{prefix}/{url.removeprefix(get_script_prefix())}"
            except NoReverseMatch:
                if _is_in_urlconf(alias):
                    # An endpoint that is included more than once also has a URL with other parameters.
                    return None

        filled = self._get_pattern(alias)
        for name, converter in RoutePattern(filled, is_endpoint=True).converters.items():
            if kwargs is None or name not in kwargs:
                return None
            filled = converter.to_url(kwargs[name]).join(re.split(rf"<(?:[^<>:]+:)?{name}>", filled))
        return f"{prefix}/{filled}"

    def find_server(self, path: str) -> tuple[str, Mapping[str, Any]] | None:
        """Return the server at this path and the values captured from it, or None.

        A trailing slash is ignored. The project's prefix is optional.
        """
        wanted, prefix = "/" + path.strip("/"), conf.force_script_name().rstrip("/")
        for alias in self.aliases:
            if not self._has_path_parameters(alias) and self._get_static_path(alias) in (wanted, prefix + wanted):
                return alias, {}

        inner = wanted.removeprefix(prefix) if wanted.startswith(f"{prefix}/") else wanted
        for alias in self.aliases:
            captured = self._match_path(alias, inner) if self._has_path_parameters(alias) else None
            if captured is not None:
                return alias, captured
        return None

    def find_only_server(self) -> str | None:
        """Return the server if there is exactly one and its path is fixed, or None.

        For such a server the well-known URL without a path is allowed as well (MCP, basic/authorization, protected
        resource metadata discovery).
        """
        aliases = self.aliases
        return aliases[0] if len(aliases) == 1 and not self._has_path_parameters(aliases[0]) else None

    def _get_static_path(self, alias: str) -> str | None:
        server = self._servers.get(alias, _DEFAULT_SETTINGS)
        uri = canonicalize_url(server.resource or self._build_uri(alias, None))
        return None if uri is None else urlsplit(uri).path or "/"

    def _match_path(self, alias: str, path: str) -> Mapping[str, Any] | None:
        if alias not in self._paths and conf.root_urlconf() is not None:
            try:
                match = resolve(path)
            except Resolver404:
                pass  # served by `asgi.mount` only
            else:
                if match.app_name == APP_NAME:
                    return match.kwargs if match.url_name == alias else None
        matched = RoutePattern(self._get_pattern(alias), is_endpoint=True).match(path.removeprefix("/"))
        return matched[2] if matched else None

    def _has_path_parameters(self, alias: str) -> bool:
        """Return True if its path, or a path that includes it, has parameters."""
        if self._servers.get(alias, _DEFAULT_SETTINGS).resource is not None:
            return False
        return self._origin is not None and self.build_path(alias, None) is None

    def _get_pattern(self, alias: str) -> str:
        return self._paths.get(alias) or self._servers.get(alias, _DEFAULT_SETTINGS).path


def _is_in_urlconf(alias: str) -> bool:
    """Return True if the URLconf contains the server, with any parameters.

    Otherwise it is served by `asgi.mount` only.
    """
    resolver = get_resolver()
    names = [APP_NAME, *resolver.app_dict.get(APP_NAME, ())]
    resolvers = [resolver.namespace_dict[name][1] for name in names if name in resolver.namespace_dict]
    return any(included.reverse_dict.getlist(alias) for included in resolvers)


def metadata_url(uri: str | None) -> str | None:
    """Return the metadata URL of a resource.

    The well-known path goes between host and path.
    """
    if uri is None or canonicalize_url(uri) is None:
        return None
    parts = urlsplit(uri)
    return f"{parts.scheme}://{parts.netloc}{WELL_KNOWN_PATH}{parts.path}"


def _is_function_path(value: Any) -> bool:
    """Return True for the dotted path of a function of the request."""
    return isinstance(value, str) and "://" not in value


def _resolve_option(value: Any, request: AuthRequest | None) -> Any:
    """Return the value of an option, or the result of the function that it names."""
    if not _is_function_path(value):
        return value
    function = cast(Callable[[AuthRequest], Any], import_string(value))
    return function(AuthRequest(_NO_HEADERS) if request is None else request)


def _validate_scopes(alias: str, value: Any) -> tuple[str, ...]:
    scopes = sorted(set(value)) if isinstance(value, list | tuple | set | frozenset) else value
    try:
        check_scopes(scopes)
    except Exception as problem:
        raise ImproperlyConfigured(
            f'REQUIRED_SCOPES of the server "{alias}" must be a list of scopes, not {value!r}'
        ) from problem
    return tuple(scopes)


def _validate_issuers(alias: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(_is_url(url, ISSUER_URL_PATTERN) for url in value):
        raise ImproperlyConfigured(
            f'AUTHORIZATION_SERVERS of the server "{alias}" must be a list of URLs, not {value!r}'
        )
    return tuple(value)


def _validate_metadata_url(alias: str, value: Any) -> str:
    """Return the URL of a document, which may have a query (RFC 9728, section 5.1)."""
    if not _is_url(value, DOCUMENT_URL_PATTERN):
        raise ImproperlyConfigured(f'RESOURCE_METADATA_URL of the server "{alias}" must be a URL, not {value!r}')
    return str(value)


def _is_url(value: Any, pattern: str) -> bool:
    return isinstance(value, str) and len(value) <= MAX_URI_CHARS and re.fullmatch(pattern, value) is not None


def build_metadata(
    resource: ProtectedResource,
    *,
    name: str | None = None,
    extra: Mapping[str, Any] | None = None,
    trailing_slash: bool = False,
) -> dict[str, Any]:
    """Build the metadata of `resource`, which must have a URL (RFC 9728, section 2).

    `name` is for people. `extra` adds or replaces entries, except "resource". With `trailing_slash` the URL ends with a
    slash, because clients compare it character by character with the URL they were given.
    """
    metadata: dict[str, Any] = {
        "authorization_servers": list(resource.authorization_servers),
        "scopes_supported": [scope for scope in resource.scopes if scope not in AUTHORIZATION_SERVER_SCOPES],
        "bearer_methods_supported": ["header"],
        "resource_name": name,
        **(extra or {}),
        "resource": f"{resource.uri}/" if trailing_slash else resource.uri,
    }
    # Entries without a value are omitted (section 3.2).
    return {key: value for key, value in metadata.items() if value not in (None, [])}
