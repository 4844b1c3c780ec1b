# mypy: disable-error-code="import-not-found, misc"
"""The airports as django-mcp-server shows them: by its query tool, and by a view of DRF.

The module's name is what it looks for. It lives in an environment of its own (`benchmarks.peers`), where mypy does
not look.
"""

from mcp_server import ModelQueryToolset, drf_publish_list_mcp_tool
from rest_framework.generics import ListAPIView

from benchmarks.data.models import Airport, Country
from benchmarks.data.rest import AirportSerializer, Pages


class AirportQueries(ModelQueryToolset):
    """Airports of the world."""

    model = Airport


class CountryQueries(ModelQueryToolset):
    """Published, so that the airports' country is shown."""

    model = Country


@drf_publish_list_mcp_tool(name="airports", instructions="List the airports.")
class AirportList(ListAPIView):
    """All airports of a page."""

    queryset = Airport.objects.all()
    serializer_class = AirportSerializer
    pagination_class = Pages
