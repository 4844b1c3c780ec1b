"""System checks of declarations, and of servers that are composed of mounts, proxies and extensions."""

from collections.abc import Iterator

from django.core.checks import CheckMessage, Error, Warning
from django.db import DatabaseError

from mcp_django import conf, wiring
from mcp_django.checks.installation import register_check
from mcp_django.conf.project import databases
from mcp_django.protocol.log_text import get_logger
from mcp_django.schema import describe_failure
from mcp_django.schema.host_rules import HostReaction, find_host_findings
from mcp_django.server.composition.extension import Extension
from mcp_django.server.composition.provider import Provider
from mcp_django.server.primitives import registry
from mcp_django.server.primitives.base import Tool
from mcp_django.server.primitives.registry import CombinedRegistry
from mcp_django.server.server import Server

logger = get_logger("mcp_django.server")

APPS_IDENTIFIER = "io.modelcontextprotocol/ui"
"""Identifier of the extension for apps (MCP Apps)."""


@register_check(reads_settings=False)
def check_declarations() -> Iterator[CheckMessage]:
    """Check that every declaration is served, by a server that exists."""
    for problem in registry.collect_problems():
        if isinstance(problem.cause, DatabaseError):
            yield Warning(
                str(problem),
                hint="Run migrate. If it stays, the code that is named reads rows while its declaration is built.",
                id="mcp_django.W013",
            )
        else:
            yield Error(str(problem), hint=problem.hint, id="mcp_django.E004")

    yield from _unknown_databases()
    yield from _unknown_servers()


def log_unserved_declarations() -> None:
    """Log the errors of declarations that no registry has logged at their registration.

    A message of a check that the project silences is not logged either.
    """
    for problem in registry.MARKED_METHODS.problems():
        logger.error("Declaration not served: %s", problem)
    for message in _unknown_servers():
        if message.is_silenced():
            continue
        logger.error("Declaration not served: %s", message.msg)


def _unknown_servers() -> Iterator[CheckMessage]:
    """Yield errors for declarations on a server that MCP["SERVERS"] lacks."""
    if not conf.is_usable():
        return

    known = conf.get_settings().servers
    for alias in sorted(registry.REGISTRIES.keys() - known.keys()):
        yield Error(
            f'A declaration names the server {alias!r}, which is not in MCP["SERVERS"].',
            hint=f"Known servers: {', '.join(sorted(known))}.",
            id="mcp_django.E006",
        )


@register_check()
def check_composition() -> Iterator[CheckMessage]:
    """Check mounts, unique names, and the checks of extensions and providers."""
    for alias, settings in conf.get_settings().servers.items():
        if not (settings.mounts or settings.proxies or settings.extensions or settings.providers):
            continue
        try:
            server = wiring.get_server(alias)
        except ImportError:
            continue  # E007 reports the path.
        except Exception as problem:
            hint = "docs/expose/composition.md describes mounts and proxies, docs/talk-back/extensions.md extensions."
            text = f'The server "{alias}" cannot be composed: {problem}'
            yield Error(text, hint=hint, id="mcp_django.E060")
            continue
        parts: tuple[Extension | Provider, ...] = (*server.extensions.extensions, *server.providers)
        for part in parts:
            yield from _run_check(alias, part)
        if isinstance(server.registry, CombinedRegistry):
            for one in server.registry.problems:
                yield Error(f"{one.text}.", hint=one.hint, id="mcp_django.E061")


def _run_check(alias: str, part: Extension | Provider) -> list[CheckMessage]:
    """Return the messages of an extension or a provider; a check that fails hides no other message."""
    try:
        return list(part.check())
    except Exception as problem:
        name = type(part).__qualname__
        text = f'The check of {name} of the server "{alias}" failed: {describe_failure(problem)}'
        return [Error(text, hint=f"Correct {name}.check(), or the declaration that it checks.", id="mcp_django.E060")]


@register_check()
def check_tasks() -> Iterator[CheckMessage]:
    """Check that tools with `task=` are on servers with extensions."""
    for alias, settings in conf.get_settings().servers.items():
        declared = registry.REGISTRIES.get(alias)
        tools = [] if declared is None or settings.extensions else [tool.name for tool in declared.tools if tool.task]
        if tools:
            yield Warning(
                f'Calls of {", ".join(tools)} never become tasks: the server "{alias}" has no extension for tasks.',
                hint='Add "mcp_django.contrib.tasks.Tasks" to the EXTENSIONS of the server, or remove task=.',
                id="mcp_django.W060",
            )


@register_check()
def check_app_links() -> Iterator[CheckMessage]:
    """Check that tools with `ui=` are on servers with the extension for apps."""
    for alias in conf.get_settings().servers:
        declared = registry.REGISTRIES.get(alias)
        tools = [] if declared is None else [tool.name for tool in declared.tools if tool.ui]
        if tools and not _has_extension(alias, APPS_IDENTIFIER):
            yield Warning(
                f'Clients show no app for {", ".join(tools)}: the server "{alias}" has no extension for apps.',
                hint='Add "mcp_django.contrib.apps.Apps" to its EXTENSIONS, or remove ui= and visibility=.',
                id="mcp_django.W061",
            )


@register_check()
def check_host_rules() -> Iterator[CheckMessage]:
    """Check that no host refuses a registered tool.

    Tools of providers depend on the caller, so only `mcp_inspect` reports theirs.
    """
    for alias in conf.get_settings().servers:
        server = _find_server(alias)
        if server is None:
            continue
        # E004 reports tools that cannot be listed.
        for tool in filter(server.registry.can_list, server.registry.tools):
            yield from _check_host_rules(tool)


def _check_host_rules(tool: Tool) -> Iterator[CheckMessage]:
    for finding in find_host_findings([tool.wire]):
        if finding.rule.reaction is HostReaction.REFUSES:
            yield Warning(
                f"{tool.source}: {finding} (refused by {finding.rule.hosts}).",
                hint=f"{finding.rule.remedy} Source: {finding.rule.source}.",
                id="mcp_django.W066",
            )


def _has_extension(alias: str, identifier: str) -> bool:
    """Return True if a server has the extension, or cannot be created, which other checks report."""
    server = _find_server(alias)
    return server is None or any(extension.identifier == identifier for extension in server.extensions.extensions)


def _find_server(alias: str) -> Server | None:
    """Return a server, or None if it cannot be created, which other checks report."""
    try:
        return wiring.get_server(alias)
    except Exception:
        return None


def _unknown_databases() -> Iterator[CheckMessage]:
    """Yield errors for transactions on a database that DATABASES lacks."""
    known = databases()
    items = [item for declared in registry.REGISTRIES.values() for item in declared.iter_all()]
    for item in items:
        for alias in () if item.handler.atomic is None else item.handler.get_databases(()):
            if alias not in known:
                yield Error(
                    f"{item.source}: atomic= names the database {alias!r}, which is not in DATABASES.",
                    hint=f"Known databases: {', '.join(known)}. Use one of them, or True for the default one.",
                    id="mcp_django.E004",
                )
