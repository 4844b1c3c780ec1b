"""Geometries in a database: `pytest --ds tests.packages.settings_postgis`."""

from typing import Any

import pytest
from django.conf import settings
from django.db import connection, models

if "gis" not in settings.DATABASES["default"]["ENGINE"]:
    pytest.skip("no spatial database", allow_module_level=True)

from django.contrib.gis.db.models import GeometryField, PointField
from django.contrib.gis.geos import GEOSGeometry, Point

from tests.orm.round_trips import build_toolset, check_round_trip
from tests.orm.toolsets import data, peer

pytestmark = pytest.mark.django_db
SQUARE = {"type": "Polygon", "coordinates": [[[8, 47], [9, 47], [9, 48], [8, 48], [8, 47]]]}


class Place(models.Model):
    point = PointField(null=True, blank=True)
    shape = GeometryField(null=True, blank=True)

    class Meta:
        app_label = "packages"
        managed = False


@pytest.fixture(autouse=True)
def table(db: None) -> None:
    """Make the table in the transaction of the test."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE EXTENSION IF NOT EXISTS postgis")
    with connection.schema_editor() as editor:
        editor.create_model(Place)


async def test_geometries_are_found_and_written_as_they_are_shown(subtests: pytest.Subtests) -> None:
    cases: tuple[tuple[str, Any], ...] = (
        ("point", Point(8.5, 47.25, srid=4326)),
        ("shape", GEOSGeometry('{"type": "LineString", "coordinates": [[8, 47], [9.5, 48]]}')),
    )
    for name, value in cases:
        with subtests.test(name=name):
            shown = await check_round_trip(Place, name, value)
            assert shown["type"] == value.geom_type


async def test_relations_between_geometries_are_lookups(subtests: pytest.Subtests) -> None:
    row = await Place.objects.acreate(point=Point(8.5, 47.25, srid=4326))
    await Place.objects.acreate(point=Point(1, 1, srid=4326))
    server = peer(build_toolset(Place, "point"))
    [described] = (await data(server, "row_describe"))["fields"]
    for lookup in ("within", "intersects", "coveredby", "bboverlaps"):
        assert lookup in described["lookups"]
        with subtests.test(lookup=lookup):
            found = await data(server, "row_list", filters={f"point__{lookup}": SQUARE})
            assert [item["pk"] for item in found["items"]] == [row.pk]
