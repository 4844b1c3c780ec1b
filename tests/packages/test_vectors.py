"""Vectors of pgvector. The server of the tests has no such extension, so no table is made."""

from typing import Any

import pytest
from pgvector.django import HalfVectorField, VectorField

from mcp_django.orm import get_codec


def test_vector_is_a_list_of_numbers(subtests: pytest.Subtests) -> None:
    for field in (VectorField(dimensions=3), HalfVectorField(dimensions=3)):
        with subtests.test(field=type(field).__name__):
            codec = get_codec(field)
            size = {"minItems": 3, "maxItems": 3}
            assert codec.schema == {"type": "array", "items": {"type": "number"}, **size}
            stored = field.from_db_value("[0.5,1,-2]", None, None)
            assert codec.serialize(stored) == [0.5, 1.0, -2.0]
            assert field.get_prep_value(codec.decode([0.5, 1, -2])) == "[0.5,1.0,-2.0]"
            assert list(codec.lookups) == ["exact", "isnull"]

            assert codec.to_form is not None
            form_field = field.formfield()
            assert field.to_python(form_field.clean(codec.to_form([0.5, 1, -2]))) == [0.5, 1.0, -2.0]


def test_wrong_vectors_are_refused(subtests: pytest.Subtests) -> None:
    codec = get_codec(VectorField(dimensions=2))
    wrong: Any
    for wrong in ("[1,2]", [1], [1, "2"], [1, True], [1, 1e400], {}):
        with subtests.test(wrong=wrong), pytest.raises(ValueError, match=r"give|out of range"):
            codec.decode(wrong)
