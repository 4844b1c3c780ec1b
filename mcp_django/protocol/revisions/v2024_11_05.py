"""The first revision, defined in full. Later revisions define their changes."""

from mcp_django.protocol.revisions.base import Era, Revision

_MEDIA = frozenset({"type", "data", "mimeType", "annotations"})

V2024_11_05 = Revision(
    version="2024-11-05",
    era=Era.HANDSHAKE,
    methods=frozenset(
        {
            "initialize",
            "ping",
            "tools/list",
            "tools/call",
            "resources/list",
            "resources/templates/list",
            "resources/read",
            "resources/subscribe",
            "resources/unsubscribe",
            "prompts/list",
            "prompts/get",
            "completion/complete",
            "logging/setLevel",
        }
    ),
    notifications=frozenset(
        {
            "notifications/initialized",
            "notifications/cancelled",
            "notifications/progress",
            "notifications/message",
            "notifications/tools/list_changed",
            "notifications/prompts/list_changed",
            "notifications/resources/list_changed",
            "notifications/resources/updated",
            "notifications/roots/list_changed",
        }
    ),
    client_notifications=frozenset(
        {
            "notifications/initialized",
            "notifications/cancelled",
            "notifications/progress",
            "notifications/roots/list_changed",
        }
    ),
    client_requests=frozenset({"ping", "roots/list", "sampling/createMessage"}),
    implementation_fields=frozenset({"name", "version"}),
    tool_fields=frozenset({"name", "description", "inputSchema"}),
    tool_annotation_fields=frozenset(),
    prompt_fields=frozenset({"name", "description", "arguments"}),
    argument_fields=frozenset({"name", "description", "required"}),
    resource_fields=frozenset({"uri", "name", "description", "mimeType", "size", "annotations"}),
    template_fields=frozenset({"uriTemplate", "name", "description", "mimeType", "annotations"}),
    contents_fields=frozenset({"uri", "mimeType", "text", "blob"}),
    annotation_fields=frozenset({"audience", "priority"}),
    content={
        "text": frozenset({"type", "text", "annotations"}),
        "image": _MEDIA,
        "resource": frozenset({"type", "resource", "annotations"}),
    },
    capabilities=frozenset({"experimental", "extensions", "logging", "prompts", "resources", "tools"}),
)
