"""Codec of Wagtail's StreamField: blocks as JSON, each with its type and value.

A block is shown as it is stored. It is not rendered for a page, which would query the database for each image or page
that it refers to.
"""

from typing import Any

from django.core.exceptions import ValidationError

from mcp_django.orm.codecs.codec import NULL_LOOKUPS, Codec, reject_comparison
from mcp_django.orm.codecs.registry import register_codec
from mcp_django.protocol.jsonrpc import JSONObject
from mcp_django.schema import ANY_VALUE_SCHEMA, to_json

MAX_BLOCKS = 1000
"""Maximum number of blocks that one value may have."""


@register_codec("wagtail.fields.StreamField")
def build_stream_codec(field: Any) -> Codec:
    """Build the codec of Wagtail's StreamField: a list of blocks with their types."""
    names = list(field.stream_block.child_blocks)

    def to_form(blocks: Any) -> Any:
        # Wagtail discards blocks of unknown types silently, and the schema is not checked inside of lists.
        for number, block in enumerate(blocks):
            if not isinstance(block, dict) or block.get("type") not in names or "value" not in block:
                raise ValueError(f"block {number}: give an object with type and value; types are {', '.join(names)}")
        try:
            value = field.stream_block.to_python(blocks)
            list(value)  # convert the blocks, which Wagtail does on first access
        except (AttributeError, KeyError, TypeError, ValueError, ValidationError):
            raise ValueError("a block has a value that does not fit its type") from None
        return value

    return Codec(
        kind="blocks",
        schema={"type": "array", "items": _build_block_schema({"type": "string"})},
        encode=lambda value: to_json(list(field.stream_block.get_prep_value(value))),
        decode=reject_comparison,
        lookups=NULL_LOOKUPS,
        is_orderable=False,
        form_schema={
            "type": "array",
            "items": _build_block_schema({"type": "string", "enum": names}),
            "maxItems": MAX_BLOCKS,
            "description": "all blocks in order; keep the id of a block that stays",
        },
        to_form=to_form,
    )


def _build_block_schema(type_schema: JSONObject) -> JSONObject:
    properties = {"type": type_schema, "value": ANY_VALUE_SCHEMA, "id": {"type": "string"}}
    return {"type": "object", "properties": properties, "required": ["type", "value"]}
