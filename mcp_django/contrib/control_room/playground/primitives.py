"""Kinds of primitives, and the entries of a server as the acting user sees them."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from mcp_django.auth.principal import DjangoPrincipal
from mcp_django.contrib.control_room.playground.messages import list_all

URI_SCHEMA = {"properties": {"uri": {"type": "string", "title": "URI"}}, "required": ["uri"]}


class Kind(NamedTuple):
    """Kind of primitives."""

    name: str
    method: str
    """Method that uses one of them."""
    lists: tuple[tuple[str, str], ...]
    """Methods that list them, and the keys of the results."""


KINDS = {
    kind.name: kind
    for kind in (
        Kind("tools", "tools/call", (("tools/list", "tools"),)),
        Kind(
            "resources",
            "resources/read",
            (("resources/list", "resources"), ("resources/templates/list", "resourceTemplates")),
        ),
        Kind("prompts", "prompts/get", (("prompts/list", "prompts"),)),
    )
}


class ListedPrimitive(NamedTuple):
    """Tool, resource, template or prompt, as the server lists it to the acting user."""

    key: str
    raw: Mapping[str, Any]

    @property
    def title(self) -> str:
        """Title for people."""
        return str(self.raw.get("title") or self.raw.get("name") or self.key)

    @property
    def description(self) -> str:
        """Description for the model."""
        return str(self.raw.get("description", ""))

    @property
    def may_write(self) -> bool:
        """True for a tool that does not say that it only reads."""
        return "inputSchema" in self.raw and self.raw.get("annotations", {}).get("readOnlyHint") is not True

    def build_schema(self) -> Mapping[str, Any]:
        """Return the schema of its arguments."""
        if "inputSchema" in self.raw:
            schema: Mapping[str, Any] = self.raw["inputSchema"]
            return schema
        if "uri" in self.raw or "uriTemplate" in self.raw:
            return URI_SCHEMA
        arguments = self.raw.get("arguments", ())
        return {
            "properties": {each["name"]: {**each, "type": "string"} for each in arguments},
            "required": [each["name"] for each in arguments if each.get("required")],
        }

    def build_params(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the params of the request that uses it."""
        if "uri" in self.raw or "uriTemplate" in self.raw:
            return dict(arguments)
        return {"name": self.key, "arguments": dict(arguments)}


def list_entries(alias: str, principal: DjangoPrincipal, kind: Kind) -> list[ListedPrimitive]:
    """Return the entries of a kind, as the principal sees them."""
    return [
        ListedPrimitive(str(raw.get("uri") or raw.get("uriTemplate") or raw["name"]), raw)
        for method, key in kind.lists
        for raw in list_all(alias, principal, method, key)
    ]
