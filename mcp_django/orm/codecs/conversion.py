"""Columns whose field classes convert values, such as a text column with members of an enum.

Such a column is shown, filtered and written as the value that Django prepares for the database, `get_prep_value`. So a
filter, an order and a form mean the shown value. If a class prepares its values elsewhere (`get_db_prep_value`,
`get_db_prep_save`), as encrypted columns do, the stored value is another one, and the column can only be compared with
null.
"""

from dataclasses import replace
from typing import Any

from django.core.exceptions import ValidationError
from django.db import models
from django.db.models.query_utils import DeferredAttribute

from mcp_django.orm.codecs.codec import NULL_LOOKUPS, Codec, Convert, ModelField, reject_comparison, to_plain_text

FieldClass = type[ModelField]


def adapt_codec(codec: Codec, field: object, field_class: FieldClass) -> Codec:
    """Return the codec of `field_class` for a field whose own class may convert values in another way."""
    is_read_converted = field_class is models.Field or _overrides(field, field_class, "from_db_value")
    if not is_read_converted and not _has_converting_attribute(field, field_class):
        return codec

    is_prepared = _overrides(field, field_class, "get_prep_value")
    codec = replace(codec, encode=_create_encoder(codec, field, is_prepared=is_prepared), encode_factory=None)
    has_stored_form = any(_overrides(field, field_class, name) for name in ("get_db_prep_value", "get_db_prep_save"))
    if is_read_converted and (has_stored_form or not is_prepared):
        return replace(codec, decode=reject_comparison, lookups=NULL_LOOKUPS, is_orderable=False)
    return replace(codec, decode=_create_decoder(codec, field))


def _overrides(field: object, field_class: FieldClass, name: str) -> bool:
    """Return True if the field's class has another method than `field_class`."""
    return getattr(type(field), name, None) is not getattr(field_class, name, None)


def _has_converting_attribute(field: object, field_class: FieldClass) -> bool:
    """Return True if the field's class adds an attribute to models that may convert an assigned value."""
    if not any(_overrides(field, field_class, name) for name in ("contribute_to_class", "descriptor_class")):
        return False
    attribute = getattr(getattr(field, "model", None), getattr(field, "attname", ""), None)
    return hasattr(type(attribute), "__set__") and type(attribute) is not DeferredAttribute


def _create_encoder(codec: Codec, field: Any, *, is_prepared: bool) -> Convert:
    is_text = codec.schema.get("type") == "string" and codec.encode in (None, to_plain_text)

    def encode(value: Any) -> Any:
        prepared = field.get_prep_value(value) if is_prepared else value
        if is_text:
            return "" if prepared is None else to_plain_text(prepared)
        return codec.serialize(prepared)

    return encode


def _create_decoder(codec: Codec, field: Any) -> Convert:
    def decode(value: Any) -> Any:
        wanted = codec.decode(value)
        try:
            field.get_prep_value(wanted)  # as the lookup will
        except ValidationError as problem:
            raise ValueError(" ".join(problem.messages).rstrip(".")) from None
        except (TypeError, ValueError):
            raise ValueError("not a value of this field") from None
        return wanted

    return decode
