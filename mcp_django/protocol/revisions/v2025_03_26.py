"""The second revision: adds batches, audio, tool annotations and completions.

It also adds a message for progress.
"""

from mcp_django.protocol.revisions.v2024_11_05 import V2024_11_05

V2025_03_26 = V2024_11_05.with_changes(
    version="2025-03-26",
    add={
        "tool_fields": {"annotations"},
        "capabilities": {"completions"},
    },
    tool_annotation_fields=frozenset({"title", "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"}),
    content={**V2024_11_05.content, "audio": V2024_11_05.content["image"]},
    sampling_content=frozenset({"text", "image", "audio"}),
    batches=True,
    progress_message=True,
)
