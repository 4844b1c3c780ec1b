"""The fifth revision: replaces the handshake by self-contained requests.

Server requests become ``input_required`` results.
"""

from mcp_django.protocol.revisions.base import Era
from mcp_django.protocol.revisions.v2025_11_25 import V2025_11_25

V2026_07_28 = V2025_11_25.with_changes(
    version="2026-07-28",
    era=Era.STATELESS,
    add={
        "methods": {"server/discover", "subscriptions/listen"},
        "notifications": {"notifications/subscriptions/acknowledged"},
    },
    remove={
        "methods": {"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"},
        "notifications": {
            "notifications/initialized",
            "notifications/roots/list_changed",
            "notifications/elicitation/complete",
        },
        "client_notifications": {
            "notifications/initialized",
            "notifications/progress",
            "notifications/roots/list_changed",
        },
        "client_requests": {"ping"},
        "capabilities": {"tasks"},
    },
    resource_not_found=-32602,
    structured="any",
    elicitation_id=False,
    url_elicitation_error=False,
    core_tasks=False,
    polling=False,
    result_type=True,
    cacheable=frozenset(
        {
            "server/discover",
            "tools/list",
            "prompts/list",
            "resources/list",
            "resources/templates/list",
            "resources/read",
        }
    ),
    input_required_methods=frozenset({"tools/call", "prompts/get", "resources/read"}),
    boolean_properties=True,
    verbatim=True,
)
