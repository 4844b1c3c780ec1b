"""Geometries of GeoDjango, which requires GDAL."""

from types import SimpleNamespace
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

try:
    from django.contrib.gis.db.models import PointField
    from django.contrib.gis.geos import Point
except ImproperlyConfigured as missing:
    pytest.skip(f"GDAL is missing: {missing}", allow_module_level=True)

from mcp_django.orm import Codec, get_codec

SWISS_GRID = 2056


def build_codec(srid: int) -> Codec:
    field: Any = PointField(srid=srid)
    field.set_attributes_from_name("place")
    field.model = SimpleNamespace(_meta=SimpleNamespace(), place=None)
    return get_codec(field)


def test_geometry_is_geojson_in_longitude_and_latitude() -> None:
    codec = build_codec(4326)
    shown = codec.serialize(Point(8.5, 47.25, srid=4326))
    assert shown == {"type": "Point", "coordinates": [8.5, 47.25]}
    assert codec.decode(shown) == Point(8.5, 47.25, srid=4326)


def test_other_coordinates_are_converted_in_both_directions() -> None:
    codec = build_codec(SWISS_GRID)
    shown = codec.serialize(Point(2_600_000, 1_200_000, srid=SWISS_GRID))
    longitude, latitude = shown["coordinates"]
    assert (round(longitude, 2), round(latitude, 2)) == (7.44, 46.95)  # Bern
    stored = codec.decode(shown)
    assert (stored.srid, round(stored.x), round(stored.y)) == (SWISS_GRID, 2_600_000, 1_200_000)


def test_form_field_takes_a_geometry() -> None:
    codec = build_codec(4326)
    assert codec.to_form is not None
    given = codec.to_form({"type": "Point", "coordinates": [8.5, 47.25]})
    assert PointField(srid=4326).formfield().clean(given) == Point(8.5, 47.25, srid=4326)


def test_other_values_are_refused(subtests: pytest.Subtests) -> None:
    codec = build_codec(4326)
    wrong: Any
    for wrong in ("POINT(8 47)", {}, {"type": "Point"}, {"type": "Point", "coordinates": ["a"]}, {"type": "Feature"}):
        with subtests.test(wrong=wrong), pytest.raises(ValueError, match="GeoJSON geometry"):
            codec.decode(wrong)
