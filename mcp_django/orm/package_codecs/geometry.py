"""Codecs of GeoDjango's geometries: GeoJSON objects (RFC 7946) in longitude and latitude.

GeoDjango requires GDAL, also for the conversion to and from GeoJSON.
"""

from typing import Any

from django.db import connections, router
from django.utils.module_loading import import_string

from mcp_django.orm.codecs.codec import NULL_LOOKUPS, Codec
from mcp_django.orm.codecs.registry import register_codec
from mcp_django.protocol import jsonrpc
from mcp_django.schema import ANY_VALUE_SCHEMA

_GEOJSON_SYSTEM = "EPSG:4326"
"""Coordinate system of GeoJSON: longitude and latitude on WGS 84."""
_GEOJSON_SRID = int(_GEOJSON_SYSTEM.removeprefix("EPSG:"))
MAX_GEOMETRY_CHARACTERS = 100_000
"""Maximum length in characters of a geometry that a client sends."""
_GEOMETRY_LOOKUPS = (
    *("bboverlaps", "contains", "contains_properly", "coveredby", "covers", "crosses", "disjoint", "equals"),
    *("exact", "intersects", "overlaps", "same_as", "touches", "within"),
)


@register_codec("django.contrib.gis.db.models.fields.GeometryField")
def build_geometry_codec(field: Any) -> Codec:
    """Build the codec of a geometry, with the relations that the database supports."""
    build_geometry: Any = import_string("django.contrib.gis.geos.GEOSGeometry")
    problems = (
        import_string("django.contrib.gis.geos.GEOSException"),
        import_string("django.contrib.gis.gdal.GDALException"),
        TypeError,
        ValueError,
    )

    def encode(value: Any) -> Any:
        geometry = value.transform(_GEOJSON_SRID, clone=True) if value.srid not in (None, _GEOJSON_SRID) else value
        return jsonrpc.loads_exactly(geometry.geojson)

    def decode(value: Any) -> Any:
        text = jsonrpc.dumps(value).decode()
        if not isinstance(value, dict) or len(text) > MAX_GEOMETRY_CHARACTERS:
            raise ValueError("give a GeoJSON geometry")
        try:
            geometry = build_geometry(text)
            geometry.srid = _GEOJSON_SRID
            return geometry if field.srid == _GEOJSON_SRID else geometry.transform(field.srid, clone=True)
        except problems:
            raise ValueError("not a GeoJSON geometry, such as {'type': 'Point', 'coordinates': [8.5, 47.4]}") from None

    schema = {
        "type": "object",
        "properties": {
            "type": {"type": "string"},
            "coordinates": {"type": "array", "items": ANY_VALUE_SCHEMA},
            "geometries": {"type": "array", "items": {"type": "object"}},
        },
        "required": ["type"],
        "description": "a GeoJSON geometry, in longitude and latitude",
    }
    return Codec(
        kind="geometry",
        schema=schema,
        encode=encode,
        decode=decode,
        lookups={**dict.fromkeys(_list_supported_lookups(field), "value"), **NULL_LOOKUPS},
        is_orderable=False,
        to_form=decode,
    )


def _list_supported_lookups(field: Any) -> list[str]:
    operations = connections[router.db_for_read(field.model)].ops
    supported = getattr(operations, "gis_operators", {})
    return [name for name in _GEOMETRY_LOOKUPS if name in supported]
