"""Capabilities of a server, as the JSON object that `initialize` and `server/discover` declare."""

from collections.abc import Iterable
from typing import NamedTuple

from mcp_django.protocol.jsonrpc import JSONMapping, JSONObject

LIST_NOTIFICATIONS = {kind: f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources")}
"""Kind of list to the notification of its changes."""
_NOTIFICATION_CAPABILITIES = frozenset({"listChanged", "logging", "subscribe"})
"""Capabilities, and members of capabilities, that consist of notifications."""


class NotifiedChanges(NamedTuple):
    """The changes that a server notifies clients of."""

    lists: frozenset[str]
    """Kinds of lists: "tools", "prompts", "resources"."""
    includes_resources: bool


def add_change_notifications(declared: JSONObject) -> None:
    """Add the members that announce changes of the declared lists, and of single resources."""
    for name in LIST_NOTIFICATIONS:
        if name in declared:
            declared[name] = {"listChanged": True, **({"subscribe": True} if name == "resources" else {})}


def merge_capabilities(declared: JSONObject, added: Iterable[JSONMapping]) -> None:
    """Add capabilities of extensions and settings, member by member; None leaves a capability as it is."""
    for capabilities in added:
        for name, value in capabilities.items():
            if value is not None:
                declared[name] = {**declared.get(name, {}), **value}


def remove_notifications(declared: JSONMapping) -> JSONObject:
    """Return the capabilities that a transport without notifications can serve."""
    return {
        name: {key: inner for key, inner in value.items() if key not in _NOTIFICATION_CAPABILITIES}
        for name, value in declared.items()
        if name not in _NOTIFICATION_CAPABILITIES
    }


def find_notified_changes(declared: JSONMapping) -> NotifiedChanges:
    """Return the changes that the declared capabilities announce."""
    lists = frozenset(kind for kind in LIST_NOTIFICATIONS if declared.get(kind, {}).get("listChanged"))
    return NotifiedChanges(lists, bool(declared.get("resources", {}).get("subscribe")))
