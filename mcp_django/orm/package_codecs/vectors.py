"""Codec of the vectors of pgvector: a list of numbers."""

import math
from typing import Any

from mcp_django.orm.codecs.codec import Codec
from mcp_django.orm.codecs.registry import register_codec

MAX_DIMENSIONS = 16_000
"""Maximum number of dimensions of a vector (pgvector, "Vector Type")."""


@register_codec("pgvector.django.vector.VectorField", "pgvector.django.halfvec.HalfVectorField")
def build_vector_codec(field: Any) -> Codec:
    """Build the codec of a vector: an array of numbers of the field's dimensions."""
    dimensions = field.dimensions
    size = {"maxItems": MAX_DIMENSIONS} if dimensions is None else {"minItems": dimensions, "maxItems": dimensions}
    schema = {"type": "array", "items": {"type": "number"}, **size}

    def decode(value: object) -> list[float]:
        if type(value) is not list or not all(type(item) in (int, float) for item in value):
            raise ValueError("give a list of numbers")
        if not 1 <= len(value) <= MAX_DIMENSIONS or (dimensions is not None and len(value) != dimensions):
            raise ValueError(f"give {dimensions or f'1 to {MAX_DIMENSIONS}'} numbers")
        numbers = [float(item) for item in value]
        if not all(map(math.isfinite, numbers)):
            raise ValueError("out of range")
        return numbers

    return Codec(
        kind="vector",
        schema=schema,
        encode=_encode_vector,
        decode=decode,
        lookups={"exact": "value", "isnull": "boolean"},
        is_orderable=False,
        # The form field takes the text of a vector.
        to_form=lambda value: f"[{','.join(map(repr, decode(value)))}]",
    )


def _encode_vector(value: Any) -> list[float]:
    # Earlier releases return arrays of numpy, or objects.
    numbers = value.to_list() if hasattr(value, "to_list") else value
    return [float(number) for number in numbers]
