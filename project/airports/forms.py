"""The form of a trip: its fields are the arguments of a tool, and its errors return to them."""

from itertools import pairwise
from typing import Any

from django import forms

from project.airports.models import Airport, Trip


class AirportCodeField(forms.CharField):
    """An IATA or ICAO code, whose value is the airport."""

    def clean(self, value: Any) -> Any:
        """Return the airport, or None for an empty optional field."""
        code = super().clean(value)
        return find_airport_row(code) if code else None


class TripEditorForm(forms.Form):
    """Name, date and airports of a trip."""

    name = forms.CharField(max_length=80)
    depart_on = forms.DateField(label="Departure", widget=forms.DateInput(attrs={"type": "date"}))
    origin = AirportCodeField(help_text="IATA or ICAO code, such as ZRH.")
    destination = AirportCodeField()
    stops = forms.CharField(required=False, help_text="Codes in order, separated by commas.")

    def clean_stops(self) -> list[Airport]:
        """Return the airports of the stops."""
        codes = self.cleaned_data["stops"].replace(",", " ").split()
        return [find_airport_row(code) for code in codes]

    def clean(self) -> dict[str, Any]:
        """Refuse a leg that ends where it starts."""
        if not self.errors and any(here == there for here, there in pairwise(self.route)):
            raise forms.ValidationError("A leg ends where it starts. Change one of its airports.")
        return self.cleaned_data

    @property
    def route(self) -> list[Airport]:
        """The airports in order."""
        values = self.cleaned_data
        return [values["origin"], *values["stops"], values["destination"]]


def find_airport_row(code: str) -> Airport:
    """Return the airport with a code. Raises ValidationError."""
    airport = Airport.objects.with_code(code).select_related("country", "region").first()
    if airport is None:
        raise forms.ValidationError(f"No airport has the code {code!r}.")
    return airport


def read_initial(trip: Trip) -> dict[str, Any]:
    """Return the values with which the form of a trip starts."""
    first, *between, last = trip.route
    return {
        "name": trip.name,
        "depart_on": trip.depart_on,
        "origin": first.code,
        "destination": last.code,
        "stops": ", ".join(airport.code for airport in between),
    }
