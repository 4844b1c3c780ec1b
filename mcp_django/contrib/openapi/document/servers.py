"""Base URL of a document: the server that the document names."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from mcp_django.contrib.openapi.document.document import OpenAPIDocument
from mcp_django.contrib.openapi.document.operations import OpenAPIOperation
from mcp_django.extensions.errors import DeclarationError

_VARIABLE = re.compile(r"\{([^{}]+)\}")


def get_base_url(document: OpenAPIDocument, variables: Mapping[str, str], label: str) -> str:
    """Return the URL of the document's first server.

    Raises DeclarationError if it is missing or not https.
    """
    servers = document.root.get("servers")
    url = _build_url(servers, variables, label)
    if not url.startswith("https://"):
        raise DeclarationError(f"{label}: {document.name} names no server with an https URL; set base_url=")
    return url


def check_server(operation: OpenAPIOperation, base_url: str, variables: Mapping[str, str], label: str) -> None:
    """Raise DeclarationError if an operation names another server than the one of the document.

    Credentials are sent only to servers that the project chose.
    """
    if operation.servers and _origin(_build_url(operation.servers, variables, label)) != _origin(base_url):
        raise DeclarationError(
            f"{label}, {operation}: it is on another server; set base_url=, or exclude it by a Route"
        )


def _build_url(servers: Any, variables: Mapping[str, str], label: str) -> str:
    server = servers[0] if isinstance(servers, list) and servers and isinstance(servers[0], Mapping) else {}
    declared_variables = server.get("variables")
    declared_variables = declared_variables if isinstance(declared_variables, Mapping) else {}
    unknown = [name for name in variables if name not in declared_variables]
    if unknown:
        raise DeclarationError(f"{label}: the server has no variable {unknown[0]!r}")

    def fill_variable(match: re.Match[str]) -> str:
        said = declared_variables.get(match[1])
        said = said if isinstance(said, Mapping) else {}
        value = variables.get(match[1], said.get("default"))
        choices = said.get("enum")
        if value is None or (isinstance(choices, list) and value not in choices):
            raise DeclarationError(f"{label}: the server's variable {match[1]!r} cannot be {value!r}; see variables=")
        return str(value)

    return _VARIABLE.sub(fill_variable, str(server.get("url", "")))


def _origin(url: str) -> tuple[str, str | None, int | None]:
    try:
        found = urlsplit(url)
        return found.scheme, found.hostname, found.port
    except ValueError:
        return "", None, None
