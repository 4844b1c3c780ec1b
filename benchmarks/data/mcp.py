# mypy: disable-error-code="import-not-found, misc"
"""The airports in django-mcp-server's query tool.

That package imports modules of this name. It is installed in an environment of its own (`benchmarks.peers`), which mypy
does not read.
"""

from mcp_server import ModelQueryToolset

from benchmarks.data.models import Airport, Country


class AirportQueries(ModelQueryToolset):
    """Airports of the world."""

    model = Airport


class CountryQueries(ModelQueryToolset):
    """Countries, which are published so that the country of an airport is shown."""

    model = Country
