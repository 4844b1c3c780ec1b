"""System check of installed distributions."""

from collections.abc import Sequence
from importlib import metadata
from typing import Any

from django.core.checks import CheckMessage, Error, register
from django.utils.version import get_version_tuple

OTHER_DISTRIBUTION = "mcp-django"
MIN_ASGIREF_VERSION = (3, 13)


@register
def check_distributions(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """Check that no other distribution owns the package, and the version of asgiref."""
    found: list[CheckMessage] = []
    if _find_version(OTHER_DISTRIBUTION) is not None:
        found.append(
            Error(
                f"The distribution {OTHER_DISTRIBUTION} is installed beside mcp-django-channels, and both install a "
                "package named mcp_django. One has overwritten files of the other.",
                hint=f"pip uninstall {OTHER_DISTRIBUTION}, then pip install --force-reinstall mcp-django-channels",
                id="mcp_django.E001",
            )
        )

    asgiref = _find_version("asgiref")
    if asgiref is not None and get_version_tuple(asgiref) < MIN_ASGIREF_VERSION:
        least = ".".join(map(str, MIN_ASGIREF_VERSION))
        found.append(
            Error(
                f"asgiref {asgiref} is installed; sync handlers require {least} or newer.",
                hint=f"pip install 'asgiref>={least}'",
                id="mcp_django.E005",
            )
        )

    return found


def _find_version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
