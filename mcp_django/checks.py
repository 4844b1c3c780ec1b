"""System checks: what is wrong with the installation, the setting and the declarations.

E001  the distribution mcp-django is installed, which has a package of the same name
E002  a key of MCP that means nothing
E003  a value of MCP that cannot be used
E004  a declaration that could not be registered
E005  asgiref is older than what sync handlers need
E006  something is declared for a server that the setting does not have
W001  without AUTH and without DEBUG every request is refused
W002  AUTH = "none" without DEBUG
"""

from collections.abc import Sequence
from importlib import metadata
from typing import Any

from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.utils.version import get_version_tuple

from . import conf
from .server import registry

OTHER_DISTRIBUTION = "mcp-django"
LEAST_ASGIREF = (3, 13)


@register
def check_distributions(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """No other distribution may write into the package, and asgiref must be new enough."""
    found: list[CheckMessage] = []
    if _version(OTHER_DISTRIBUTION) is not None:
        found.append(
            Error(
                f"The distribution {OTHER_DISTRIBUTION} is installed beside mcp-django-channels, and both install a "
                "package named mcp_django, so that one has overwritten files of the other.",
                hint=f"pip uninstall {OTHER_DISTRIBUTION}, then pip install --force-reinstall mcp-django-channels",
                id="mcp_django.E001",
            )
        )
    asgiref = _version("asgiref")
    if asgiref is not None and get_version_tuple(asgiref) < LEAST_ASGIREF:
        least = ".".join(map(str, LEAST_ASGIREF))
        found.append(
            Error(
                f"asgiref {asgiref} is installed; handlers that use threads need {least} or newer.",
                hint=f"pip install 'asgiref>={least}'",
                id="mcp_django.E005",
            )
        )
    return found


@register
def check_settings(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """Every key of MCP must mean something, and every value be of use."""
    found: list[CheckMessage] = []
    for problem in conf.problems():
        hint = f"Did you mean {problem.suggestion!r}?" if problem.suggestion else None
        if problem.unknown and hint is None:
            hint = "The keys are described in mcp_django/conf.py."
        id = "mcp_django.E002" if problem.unknown else "mcp_django.E003"
        found.append(Error(f"{problem.path} {problem.message}.", hint=hint, id=id))
    return found


@register(Tags.security)
def check_authentication(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """Who may call should have been decided before DEBUG is off."""
    if conf.debug() or not _usable():
        return []
    match conf.get_settings().auth:
        case ():
            return [
                Warning(
                    'MCP["AUTH"] is not set and DEBUG is off, so every MCP request is refused with 403.',
                    hint='Set MCP = {"AUTH": "token"} and make tokens with mcp_createtoken, or name a verifier.',
                    id="mcp_django.W001",
                )
            ]
        case ("none",):
            return [
                Warning(
                    'MCP["AUTH"] is "none" and DEBUG is off: whoever reaches this server from loopback has all rights.',
                    hint='Behind a proxy on the same machine that hides its clients this is everybody; use "token".',
                    id="mcp_django.W002",
                )
            ]
    return []


@register
def check_declarations(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """Every tool, resource, prompt and completion that was declared must be served, by a server that exists."""
    found: list[CheckMessage] = []
    for problem in registry.problems():
        text = problem.text if problem.source in problem.text else f"{problem.source}: {problem.text}"
        found.append(Error(text, hint=problem.hint, id="mcp_django.E004"))
    if not _usable():
        return found
    known = conf.get_settings().servers
    found += [
        Error(
            f'Something is declared for the server {alias!r}, which MCP["SERVERS"] does not have.',
            hint=f"It has: {', '.join(sorted(known))}.",
            id="mcp_django.E006",
        )
        for alias in sorted(registry.REGISTRIES.keys() - known.keys())
    ]
    return found


def _usable() -> bool:
    return all(problem.unknown for problem in conf.problems())


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
