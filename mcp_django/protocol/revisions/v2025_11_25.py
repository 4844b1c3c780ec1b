"""The fourth revision: adds icons, url elicitation, richer forms and polling.

It also adds tools in sampling. Argument errors move into the tool's result. An extension of the server implements the
experimental tasks of this revision, so neither their methods nor ``Tool.execution`` are listed.
"""

from mcp_django.protocol.revisions.v2025_06_18 import V2025_06_18

V2025_11_25 = V2025_06_18.with_changes(
    version="2025-11-25",
    add={
        "notifications": {"notifications/elicitation/complete"},
        "capabilities": {"tasks"},
        "implementation_fields": {"description", "icons", "websiteUrl"},
        "tool_fields": {"icons"},
        "prompt_fields": {"icons"},
        "resource_fields": {"icons"},
        "template_fields": {"icons"},
    },
    content={**V2025_06_18.content, "resource_link": V2025_06_18.content["resource_link"] | {"icons"}},
    elicitation=frozenset({"form", "url"}),
    elicitation_id=True,
    form_defaults=frozenset({"boolean", "string", "number", "integer", "array"}),
    form_titled_enums=True,
    form_multi_select=True,
    polling=True,
    sampling=frozenset({"tools", "context"}),
    sampling_content=V2025_06_18.sampling_content | {"tool_use", "tool_result"},
    sampling_lists=True,
    argument_errors_in_result=True,
    url_elicitation_error=True,
    core_tasks=True,
)
