"""Distances on the globe, and boxes that hold every point within a distance.

The Earth is taken as a sphere, which is right to about half a percent. Angles are degrees, distances kilometres.
"""

from math import asin, cos, degrees, radians, sin, sqrt
from typing import NamedTuple

EARTH_RADIUS_KM = 6371.0088
HALF_WAY_ROUND_KM = 20015.2


class Box(NamedTuple):
    """A range of latitudes and one of longitudes; `west > east` when the box crosses the antimeridian."""

    south: float
    north: float
    west: float
    east: float


def distance_km(latitude: float, longitude: float, other_latitude: float, other_longitude: float) -> float:
    """Return the great-circle distance between two points, by the haversine formula."""
    from_latitude, to_latitude = radians(latitude), radians(other_latitude)
    rise = sin((to_latitude - from_latitude) / 2)
    turn = sin(radians(other_longitude - longitude) / 2)
    chord = rise * rise + cos(from_latitude) * cos(to_latitude) * turn * turn
    return 2 * EARTH_RADIUS_KM * asin(sqrt(min(1.0, chord)))


def box_around(latitude: float, longitude: float, radius_km: float) -> Box:
    """Return a box that holds every point within `radius_km` (and, in its corners, some farther ones).

    A circle that reaches a pole touches every meridian, so its box goes all the way round.
    """
    angle = radius_km / EARTH_RADIUS_KM
    # A hair wider than exact: rounding must not put a point on the circle outside the box.
    reach = degrees(angle) + 1e-6
    south, north = latitude - reach, latitude + reach
    if south <= -90 or north >= 90:
        return Box(max(south, -90.0), min(north, 90.0), -180.0, 180.0)
    spread = degrees(asin(min(1.0, sin(angle) / cos(radians(latitude))))) + 1e-6
    west, east = longitude - spread, longitude + spread
    return Box(south, north, west + 360 if west < -180 else west, east - 360 if east > 180 else east)
