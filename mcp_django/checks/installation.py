"""System check of installed distributions."""

from collections.abc import Sequence
from importlib import metadata
from typing import Any

from django.core.checks import CheckMessage, Error, register
from django.utils.version import get_version_tuple

OTHER_DISTRIBUTION = "mcp-django"
LEAST_ASGIREF = (3, 13)


@register
def check_distributions(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """Check that no other distribution owns the package, and the version of asgiref."""
    found: list[CheckMessage] = []
    if _version(OTHER_DISTRIBUTION) is not None:
        found.append(
            Error(
                f"The distribution {OTHER_DISTRIBUTION} is installed beside mcp-django-channels, and both install a "
                "package named mcp_django. One has overwritten files of the other.",
                hint=f"pip uninstall {OTHER_DISTRIBUTION}, then pip install --force-reinstall mcp-django-channels",
                id="mcp_django.E001",
            )
        )

    asgiref = _version("asgiref")
    if asgiref is not None and get_version_tuple(asgiref) < LEAST_ASGIREF:
        least = ".".join(map(str, LEAST_ASGIREF))
        found.append(
            Error(
                f"asgiref {asgiref} is installed; sync handlers require {least} or newer.",
                hint=f"pip install 'asgiref>={least}'",
                id="mcp_django.E005",
            )
        )

    return found


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
