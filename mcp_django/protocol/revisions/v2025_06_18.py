"""The third revision: adds titles, structured content and elicitation forms.

It also adds resource links and ``_meta`` on items, and removes batches.
"""

from mcp_django.protocol.revisions.v2025_03_26 import V2025_03_26

V2025_06_18 = V2025_03_26.with_changes(
    version="2025-06-18",
    add={
        "client_requests": {"elicitation/create"},
        "implementation_fields": {"title"},
        "tool_fields": {"title", "outputSchema", "_meta"},
        "prompt_fields": {"title", "_meta"},
        "argument_fields": {"title"},
        "resource_fields": {"title", "_meta"},
        "template_fields": {"title", "_meta"},
        "contents_fields": {"_meta"},
        "annotation_fields": {"lastModified"},
    },
    content={
        **{kind: fields | {"_meta"} for kind, fields in V2025_03_26.content.items()},
        "resource_link": V2025_03_26.resource_fields | {"type", "title", "_meta"},
    },
    batches=False,
    structured="object",
    elicitation=frozenset({"form"}),
    form_defaults=frozenset({"boolean"}),
    completion_context=True,
)
