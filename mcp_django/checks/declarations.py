"""System checks of declarations, and of servers that are composed of mounts and proxies."""

from collections.abc import Sequence
from typing import Any

from django.core.checks import CheckMessage, Error, register

from mcp_django import conf, wiring
from mcp_django.conf.project import databases
from mcp_django.server.primitives import registry
from mcp_django.server.primitives.registry import CombinedRegistry


@register
def check_declarations(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """Check that every declaration is served, by a server that exists."""
    found: list[CheckMessage] = []
    for problem in registry.collect_problems():
        text = problem.text if problem.source in problem.text else f"{problem.source}: {problem.text}"
        found.append(Error(text, hint=problem.hint, id="mcp_django.E004"))

    found += _unknown_databases()
    if not conf.is_usable():
        return found

    known = conf.get_settings().servers
    found += [
        Error(
            f'A declaration names the server {alias!r}, which is not in MCP["SERVERS"].',
            hint=f"Known servers: {', '.join(sorted(known))}.",
            id="mcp_django.E006",
        )
        for alias in sorted(registry.REGISTRIES.keys() - known.keys())
    ]
    return found


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


def _unknown_databases() -> list[CheckMessage]:
    """Return errors for transactions on a database that DATABASES lacks."""
    known = databases()
    return [
        Error(
            f"{item.source}: atomic= names the database {alias!r}, which is not in DATABASES.",
            hint=f"Known databases: {', '.join(known)}. Use one of them, or True for the default one.",
            id="mcp_django.E004",
        )
        for declared in registry.REGISTRIES.values()
        for item in declared.iter_all()
        for alias in (() if item.handler.atomic is None else item.handler.get_databases(()))
        if alias not in known
    ]
