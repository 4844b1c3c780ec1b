"""System check of composed servers: mounts and proxies."""

from collections.abc import Sequence
from typing import Any

from django.core.checks import CheckMessage, Error, register

from mcp_django import conf, wiring
from mcp_django.server.primitives.registry import CombinedRegistry


@register
def check_composition(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """Check that mounted servers exist, and that names do not collide."""
    found: list[CheckMessage] = []
    for alias, settings in conf.get_settings().servers.items() if conf.is_usable() else ():
        if not (settings.mounts or settings.proxies):
            continue
        try:
            registry = wiring.get_server(alias).registry
        except Exception as problem:
            hint = "docs/topics/composition.md describes mounts and proxies."
            text = f'The server "{alias}" cannot be composed: {problem}'
            found.append(Error(text, hint=hint, id="mcp_django.E060"))
            continue
        if isinstance(registry, CombinedRegistry):
            found += [Error(f"{one.text}.", hint=one.hint, id="mcp_django.E061") for one in registry.problems]
    return found
