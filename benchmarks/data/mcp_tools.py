"""The airports in a toolset of this package."""

from benchmarks.data.models import Airport
from mcp_django import ModelToolset, register


@register(Airport)
class Airports(ModelToolset):
    """Airports of the world."""

    fields = [
        "id",
        "code",
        "name",
        "city",
        "country",
        "kind",
        "latitude",
        "longitude",
        "elevation",
        "opened",
        "changed",
    ]
    tools = ["list", "get"]
    max_limit = 100
