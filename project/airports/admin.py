"""The admin of the demo."""

from typing import Any

from django.contrib import admin
from django.db.models import Count, QuerySet
from django.http import HttpRequest

from project.airports.models import Airport, Country, Region, Stop, Trip


class CountedAdmin(admin.ModelAdmin):
    """A list page that shows, sortably, how many airports each row has."""

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Count the airports in the same query."""
        counted: QuerySet[Any] = super().get_queryset(request).annotate(airport_count=Count("airports"))
        return counted

    @admin.display(description="airports", ordering="airport_count")
    def airport_count(self, row: Any) -> int:
        """How many airports lie here."""
        count: int = row.airport_count
        return count


@admin.register(Country)
class CountryAdmin(CountedAdmin):
    """Countries."""

    list_display = ["name", "flag", "code", "alpha_3", "airport_count"]
    search_fields = ["name", "official_name", "=code", "=alpha_3"]


@admin.register(Region)
class RegionAdmin(CountedAdmin):
    """Regions."""

    list_display = ["name", "code", "type", "country", "airport_count"]
    list_select_related = ["country"]
    list_filter = [("country", admin.RelatedOnlyFieldListFilter)]
    search_fields = ["name", "=code", "country__name"]
    autocomplete_fields = ["country"]


class ServedFilter(admin.SimpleListFilter):
    """Airports with an IATA code, which are those that airlines serve, or without."""

    title = "IATA code"
    parameter_name = "served"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the two choices."""
        return [("yes", "With"), ("no", "Without")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Keep the airports of the choice."""
        match self.value():
            case "yes":
                return queryset.exclude(iata="")
            case "no":
                return queryset.filter(iata="")
        return queryset


@admin.register(Airport)
class AirportAdmin(admin.ModelAdmin):
    """Airports."""

    list_display = ["icao", "iata", "name", "city", "region", "country", "elevation"]
    list_display_links = ["icao", "name"]
    list_select_related = ["region", "country"]
    list_filter = [ServedFilter, ("country", admin.RelatedOnlyFieldListFilter)]
    list_per_page = 50
    search_fields = ["search_text"]
    search_help_text = "Code, name or city; accents do not matter."
    autocomplete_fields = ["country", "region"]
    fieldsets = [
        (None, {"fields": [("icao", "iata"), "name", "city", "country", "region", "subdivision"]}),
        ("Position", {"fields": [("latitude", "longitude"), "elevation", "timezone"]}),
    ]

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Airport], search_term: str
    ) -> tuple[QuerySet[Airport], bool]:
        """Search as the MCP tool does; the autocomplete fields of trips come here too."""
        if not search_term.strip():
            return queryset, False
        return Airport.objects.search(search_term).filter(pk__in=queryset.values("pk")), False


class StopInline(admin.TabularInline):
    """The stops of a trip."""

    model = Stop
    extra = 0
    autocomplete_fields = ["airport"]


@admin.register(Trip)
class TripAdmin(admin.ModelAdmin):
    """Trips."""

    list_display = ["name", "owner", "origin", "destination", "depart_on", "created"]
    list_select_related = ["owner", "origin", "destination"]
    list_filter = ["depart_on", ("owner", admin.RelatedOnlyFieldListFilter)]
    search_fields = ["name", "owner__username", "origin__search_text", "destination__search_text"]
    autocomplete_fields = ["owner", "origin", "destination"]
    date_hierarchy = "created"
    inlines = [StopInline]
