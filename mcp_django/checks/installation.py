"""Registration of system checks, and the check of the installation.

Checks are generators of messages.
"""

from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from typing import Any

from django.core.checks import CheckMessage, Error, register
from django.utils.version import get_version_tuple

from mcp_django import conf

OTHER_DISTRIBUTION = "mcp-django"
MIN_ASGIREF_VERSION = (3, 13)
FindProblems = Callable[[], Iterable[CheckMessage]]
DjangoCheck = Callable[..., list[CheckMessage]]


def register_check(
    *tags: str, deploy: bool = False, reads_settings: bool = True, is_needed: Callable[[], bool] | None = None
) -> Callable[[FindProblems], DjangoCheck]:
    """Decorate a function of problems to register it as a system check with these tags.

    With `deploy` it runs with `check --deploy` only. A check that `reads_settings` is skipped while a value of `MCP`
    is invalid, which E003 reports. `is_needed` returns False if the check does not concern the project.
    """

    def decorate(find_problems: FindProblems) -> DjangoCheck:
        def check(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
            if (reads_settings and not conf.is_usable()) or (is_needed is not None and not is_needed()):
                return []
            return list(find_problems())

        return register(check, *tags, deploy=deploy)

    return decorate


@register_check(reads_settings=False)
def check_distributions() -> Iterator[CheckMessage]:
    """Check that no other distribution owns the package, and the version of asgiref."""
    if _find_version(OTHER_DISTRIBUTION) is not None:
        yield Error(
            f"The distribution {OTHER_DISTRIBUTION} is installed beside mcp-django-channels, and both install a "
            "package named mcp_django. One has overwritten files of the other.",
            hint=f"pip uninstall {OTHER_DISTRIBUTION}, then install mcp-django-channels again with --force-reinstall",
            id="mcp_django.E001",
        )

    asgiref = _find_version("asgiref")
    if asgiref is not None and get_version_tuple(asgiref) < MIN_ASGIREF_VERSION:
        least = ".".join(map(str, MIN_ASGIREF_VERSION))
        yield Error(
            f"asgiref {asgiref} is installed; sync handlers require {least} or newer.",
            hint=f"pip install 'asgiref>={least}'",
            id="mcp_django.E005",
        )


def _find_version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
