"""Base URL of a document: the server that the document names."""

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from mcp_django.contrib.openapi.document.document import Document
from mcp_django.contrib.openapi.document.operations import Operation
from mcp_django.schema import DeclarationError

_VARIABLE = re.compile(r"\{([^{}]+)\}")


def base_url_of(document: Document, picked: Sequence[Operation], variables: Mapping[str, str], where: str) -> str:
    """Return the URL of the document's first server.

    Raises DeclarationError if it is missing or not https, or if operations name another server. Credentials are sent
    only to servers that the project chose.
    """
    servers = document.root.get("servers")
    url = _url(servers, variables, where)
    if not url.startswith("https://"):
        raise DeclarationError(f"{where}: {document.name} names no server with an https URL; set base_url=")
    for operation in picked:
        if operation.servers and _origin(_url(operation.servers, variables, where)) != _origin(url):
            raise DeclarationError(
                f"{where}: {operation} is on another server; set base_url=, or exclude it by a Route"
            )
    return url


def _url(servers: Any, variables: Mapping[str, str], where: str) -> str:
    server = servers[0] if isinstance(servers, list) and servers and isinstance(servers[0], Mapping) else {}
    known = server.get("variables")
    known = known if isinstance(known, Mapping) else {}
    unknown = [name for name in variables if name not in known]
    if unknown:
        raise DeclarationError(f"{where}: the server has no variable {unknown[0]!r}")

    def filled(match: re.Match[str]) -> str:
        said = known.get(match[1])
        said = said if isinstance(said, Mapping) else {}
        value = variables.get(match[1], said.get("default"))
        choices = said.get("enum")
        if value is None or (isinstance(choices, list) and value not in choices):
            raise DeclarationError(f"{where}: the server's variable {match[1]!r} cannot be {value!r}; see variables=")
        return str(value)

    return _VARIABLE.sub(filled, str(server.get("url", "")))


def _origin(url: str) -> tuple[str, str | None, int | None]:
    found = urlsplit(url)
    try:
        return found.scheme, found.hostname, found.port
    except ValueError:
        return "", None, None
