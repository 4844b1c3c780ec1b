"""Sources of clients for a proxy: entries of `MCP["CLIENTS"]` and targets."""

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol

from mcp_django.client import Client, get_client
from mcp_django.client.client import DEFAULT_STARTUP_TIMEOUT_SECONDS
from mcp_django.client.pool.factory import build_client
from mcp_django.client.pool.pool import client_settings
from mcp_django.client.session.passthrough import CallbackOptions
from mcp_django.extensions.event_loop import LoopLocal


class RemoteSource(Protocol):
    """Source of clients for one remote server."""

    name: str
    """Name of the remote server in the project."""

    @property
    def per_user(self) -> bool:
        """True if each user has a credential on the remote server."""

    @property
    def startup_timeout(self) -> float:
        """Seconds that one attempt to connect may take."""

    def get_shared_client(self, user: Any) -> Client:
        """Return the connection that this user, or all users, share on this event loop."""

    def create_client(
        self, user: Any, headers: Mapping[str, str] | None, answering: CallbackOptions, tools: bool
    ) -> Client:
        """Create a client that the caller must close."""

    async def close(self) -> None:
        """Close the shared connections of this event loop, unless the client pool does."""


class TargetSource:
    """A target object, used with its own credential only."""

    per_user = False

    def __init__(self, name: str, target: Any, **options: Any) -> None:
        """Create a source; `options` are those of `Client`."""
        self.name = name
        self.startup_timeout: float = options.get("startup_timeout", DEFAULT_STARTUP_TIMEOUT_SECONDS)
        self._target = target
        self._options = options
        self._shared_clients = LoopLocal(partial(self.create_client, None, None, {}, False))

    def get_shared_client(self, user: Any) -> Client:
        return self._shared_clients.get()

    def create_client(
        self, user: Any, headers: Mapping[str, str] | None, answering: CallbackOptions, tools: bool
    ) -> Client:
        target = self._target
        if headers is not None:
            target = dataclasses.replace(target, headers={**target.headers, **headers})
        return Client(target, alias=self.name, sampling_tools=tools, **self._options, **answering)

    async def close(self) -> None:
        client = self._shared_clients.pop()
        if client is not None:
            await client.close()


class SettingsSource:
    """An entry of `MCP["CLIENTS"]`."""

    def __init__(self, alias: str) -> None:
        """Check the alias; raise ImproperlyConfigured if it is unknown."""
        self.name = alias
        client_settings(alias)

    @property
    def per_user(self) -> bool:
        return client_settings(self.name).per_user

    @property
    def startup_timeout(self) -> float:
        return client_settings(self.name).startup_timeout

    def get_shared_client(self, user: Any) -> Client:
        return get_client(self.name, user=user)

    async def close(self) -> None:
        """Leave the connections open: `aclose_clients` closes them."""

    def create_client(
        self, user: Any, headers: Mapping[str, str] | None, answering: CallbackOptions, tools: bool
    ) -> Client:
        settings = client_settings(self.name)
        return build_client(settings, user=user, retries=False, headers=headers, sampling_tools=tools, **answering)


def resolve_source(source: Any, prefix: str | None) -> RemoteSource:
    """Return the source for an alias or a target. Raises TypeError for other values."""
    if isinstance(source, str):
        return SettingsSource(source)
    if isinstance(source, TargetSource):
        return source
    if callable(getattr(source, "open", None)):
        return TargetSource(prefix or "remote", source)
    raise TypeError(
        f"A proxy requires an alias of MCP['CLIENTS'] or a target such as StreamableHTTP(url), not {source!r}"
    )
