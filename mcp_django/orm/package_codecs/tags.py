"""Codec of the tags of django-taggit, which clients write by name.

Rows show tags as other related rows. A written list replaces the tags of the row. Tags that do not exist are created.
"""

from typing import Any

from mcp_django.orm.codecs.codec import NULL_LOOKUPS, Codec, reject_comparison, to_plain_text
from mcp_django.orm.codecs.registry import register_codec

MAX_TAGS = 200
"""Maximum number of tags of a row."""
_QUOTE = '"'


@register_codec("taggit.managers.TaggableManager")
def build_tag_codec(field: Any) -> Codec:
    """Build the codec of a TaggableManager: a list of names."""
    name = field.related_model._meta.get_field("name")
    item = {"type": "string", "minLength": 1, "maxLength": name.max_length}

    def to_form(names: Any) -> str:
        if any(len(one.strip()) > name.max_length for one in names):
            raise ValueError(f"a tag is longer than {name.max_length} characters")
        return join_names(names)

    return Codec(
        kind="list",
        schema={"type": "array", "items": {"type": "string"}},
        encode=lambda tags: [to_plain_text(tag) for tag in tags],
        decode=reject_comparison,
        lookups=NULL_LOOKUPS,
        is_orderable=False,
        form_schema={
            "type": "array",
            "items": item,
            "maxItems": MAX_TAGS,
            "description": "all tags of the row, by name; missing tags are created",
        },
        to_form=to_form,
    )


def join_names(names: Any) -> str:
    """Join names to the text that the form field of tags parses.

    Raises:
        ValueError: a name cannot be part of such a text.
    """
    for name in names:
        if type(name) is not str or not name.strip() or _QUOTE in name:
            raise ValueError("give names that are not empty and have no double quotes")
    return ",".join(f"{_QUOTE}{name.strip()}{_QUOTE}" for name in names)
