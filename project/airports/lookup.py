"""Lookup of rows by the words of a model. The text of a ToolError names the fault and the remedy."""

from django.db.models import Q

from mcp_django import ToolError
from project.airports.models import Airport, Country


async def find_country(text: str) -> Country:
    """Return the country with this code or name, or raise a ToolError with the values to give instead."""
    named = Q(code__iexact=text) | Q(alpha_3__iexact=text) | Q(name__iexact=text)
    country = await Country.objects.filter(named).afirst()
    if country is None:
        raise ToolError(f"No country is called {text!r}; give its ISO code or English name, such as CH or Switzerland.")
    return country


async def find_airport(code: str) -> Airport:
    """Return the airport with this code, or raise a ToolError with the way to find one."""
    airport = await Airport.objects.with_code(code).select_related("country", "region").afirst()
    if airport is None:
        raise ToolError(f"No airport has the code {code!r}; search_airports finds codes by name or city.")
    return airport
