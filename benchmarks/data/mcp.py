# mypy: disable-error-code="import-not-found, misc"
"""The airports as django-mcp-server shows them: by its query tool.

The module's name is what it looks for. It lives in an environment of its own (`benchmarks.peers`), where mypy does
not look.
"""

from mcp_server import ModelQueryToolset

from benchmarks.data.models import Airport, Country


class AirportQueries(ModelQueryToolset):
    """Airports of the world."""

    model = Airport


class CountryQueries(ModelQueryToolset):
    """Published, so that the airports' country is shown."""

    model = Country
