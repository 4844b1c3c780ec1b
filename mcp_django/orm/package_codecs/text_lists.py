"""Codecs of columns that store several texts as one, separated by commas: countries and choices.

Rows show lists, forms take lists, and the filter `contains` finds the rows with one of the texts.
"""

from typing import Any

from django.db import models

from mcp_django.orm.codecs.codec import Codec, Convert, reject_comparison, to_plain_text
from mcp_django.orm.codecs.parsing import parse_text_value
from mcp_django.orm.codecs.registry import get_codec, register_codec

_SEPARATOR = ","


@register_codec("django_countries.fields.CountryField")
def build_country_codec(field: Any) -> Codec:
    """Build the codec of a CountryField: a code, or a list of codes with `multiple`."""
    return _build_list_codec(field) if field.multiple else get_codec(field, models.CharField)


@register_codec("multiselectfield.db.fields.MultiSelectField")
def build_multiple_choice_codec(field: Any) -> Codec:
    """Build the codec of a MultiSelectField."""
    return _build_list_codec(field)


def _build_list_codec(field: Any) -> Codec:
    texts = [to_plain_text(value) for value, _ in field.flatchoices or ()]
    # The database compares texts, so a text that is part of another one would find rows without it.
    is_unambiguous = not any(text in other for text in texts for other in texts if text != other)
    lookups: dict[str, str | Convert] = {"isnull": "boolean"}
    if is_unambiguous:
        lookups = {"contains": parse_item, **lookups}
    return Codec(
        kind="list",
        schema={"type": "array", "items": {"type": "string"}},
        encode=encode_items,
        decode=reject_comparison,
        lookups=lookups,
        is_orderable=False,
    )


def encode_items(value: Any) -> list[str]:
    """Return the texts of a column, which holds them as one text or as a list."""
    items = value.split(_SEPARATOR) if isinstance(value, str) else value
    return [to_plain_text(getattr(item, "code", item)) for item in items if item]


def parse_item(value: Any) -> str:
    """Return one of the texts of a column.

    Raises:
        ValueError: the value is not text, empty, or several texts.
    """
    text = parse_text_value(value)
    if not text or _SEPARATOR in text:
        raise ValueError("give one text of the list")
    return text
