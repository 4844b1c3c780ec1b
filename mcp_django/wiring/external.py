"""Verifier for the identity providers of `MCP["ISSUERS"]`.

`MCP["AUTH"]` refers to it as "external".
"""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Final

from mcp_django import conf
from mcp_django.auth.authentication.verifiers import Verifier
from mcp_django.auth.external.verifier import ExternalVerifier

REQUIRED_PACKAGES: Final = ("httpx", "jwcrypto")
"""Packages of the extra `external`."""


def create_verifiers() -> Sequence[Verifier]:
    """Return the verifier of all issuers, shared by all servers to share its caches.

    Raises ImportError.
    """
    missing = [name for name in REQUIRED_PACKAGES if find_spec(name) is None]
    if missing:
        raise ImportError(f"{' and '.join(missing)} must be installed: pip install 'mcp-django-channels[external]'")
    return [_get_verifier()]


@conf.cached()
def _get_verifier() -> ExternalVerifier:
    return ExternalVerifier(conf.get_settings().issuers)
