"""Known habits of clients that differ from the protocol, and messages without them.

Many clients encode an absent member as null, and some hosts pass arguments on that they added for themselves. The
intention is clear in both cases, so the server serves such requests. Everything else stays as strict as before. Each
habit has a report of it as its source.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from mcp_django.protocol.meta import PROGRESS_TOKEN

META = "_meta"

NULL_MEMBERS: Mapping[str, frozenset[str]] = {
    # metoro-io/mcp-golang#124: the client sends a null cursor for the first page.
    "tools/list": frozenset({META, "cursor"}),
    "resources/list": frozenset({META, "cursor"}),
    "resources/templates/list": frozenset({META, "cursor"}),
    "prompts/list": frozenset({META, "cursor"}),
    # modelcontextprotocol/typescript-sdk#2012, smart-mcp-proxy/mcpproxy-go#427: encoders of Go, Java and C#.
    "tools/call": frozenset({META, "arguments", "requestState", "inputResponses"}),
    "prompts/get": frozenset({META, "arguments", "requestState", "inputResponses"}),
    "resources/read": frozenset({META, "requestState", "inputResponses"}),
    "completion/complete": frozenset({META, "context"}),
}
"""Optional members of `params` that may be null, by method. Null is served as absent."""

ADDED_ARGUMENTS = frozenset(
    {
        "toolCallId",  # n8n-io/n8n#21716, n8n-io/n8n#35067, makenotion/notion-mcp-server#146
        "task_progress",  # cline/cline#8256, cline/cline#9951
    }
)
"""Arguments that hosts add to those of the model.

They are removed from calls of tools that do not define them.
"""


def remove_null_members(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return `params` without optional members that are null; the same object if there are none."""
    if None in params.values():
        optional = NULL_MEMBERS.get(method, _META_ONLY)
        params = {name: value for name, value in params.items() if value is not None or name not in optional}
    meta = params.get(META)
    if type(meta) is dict and meta.get(PROGRESS_TOKEN, "") is None:
        # The same encoders, for a request without progress.
        return {**params, META: {name: value for name, value in meta.items() if name != PROGRESS_TOKEN}}
    return params


def remove_added_arguments(arguments: dict[str, Any], defined: Container[str]) -> dict[str, Any]:
    """Return arguments without those that hosts add, unless `defined` has them."""
    return {name: value for name, value in arguments.items() if name not in ADDED_ARGUMENTS or name in defined}


_META_ONLY = frozenset({META})
