"""Lengths in the units of pilots and travellers: a toolset that is mounted (`MOUNTS` in the settings)."""

from typing import Annotated, Literal

from pydantic import Field

from mcp_django import Toolset, tool

METRES = {"m": 1.0, "km": 1000.0, "ft": 0.3048, "mi": 1609.344, "nmi": 1852.0}
"""Units by their symbols."""
Unit = Literal["m", "km", "ft", "mi", "nmi"]


class Units(Toolset):
    """It knows nothing of its prefix: where it is mounted as "units", its tool is called units__convert."""

    @tool(annotations={"readOnlyHint": True, "openWorldHint": False, "idempotentHint": True})
    async def convert(self, value: Annotated[float, Field(ge=0, le=1e9)], unit: Unit, to: Unit) -> float:
        """Convert a length, such as an elevation in feet or a distance in kilometres.

        Args:
            value: How many of the unit.
            unit: What the value is in.
            to: What to convert it to.
        """
        return round(value * METRES[unit] / METRES[to], 3)
