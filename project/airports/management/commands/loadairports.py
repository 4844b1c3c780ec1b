"""Load the airports of the world, with their countries and regions."""

from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import models, transaction
from tqdm import tqdm

from project.airports import sources
from project.airports.models import Airport

BATCH = 1000


class Command(BaseCommand):
    """Insert or update every row in one transaction; running it again changes nothing."""

    help = (
        "Loads countries and regions (pycountry) and 28,000 airports (airportsdata). Rows that exist are brought up to "
        "date, none are removed, and a failure leaves the database as it was."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options that limit the load."""
        parser.add_argument(
            "--country", action="append", metavar="CODE", help="Only this country (alpha-2 code); may be repeated."
        )
        parser.add_argument("--limit", type=int, metavar="N", help="At most N airports.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Load countries, regions and airports, in the order in which they refer to each other."""
        codes = {code.upper() for code in options["country"]} if options["country"] else None
        countries = sources.countries(codes)
        if codes and (unknown := codes - {country.code for country in countries}):
            raise CommandError(f"No country has the code {', '.join(sorted(unknown))}; use ISO 3166-1 alpha-2 codes.")
        regions = sources.regions(codes)
        airports = list(islice(sources.airports(sources.RegionFinder(regions), codes), options["limit"]))
        with transaction.atomic(), progress_bar(len(airports)) as bar:
            upsert(countries)
            upsert(regions)
            for batch in _batches(airports, BATCH):
                upsert(batch)
                bar.update(len(batch))
        if options["verbosity"] > 0:
            placed = sum(airport.region_id is not None for airport in airports)
            self.stdout.write(
                f"{len(airports):,} airports in {len(countries):,} countries; "
                f"{placed:,} placed in one of {len(regions):,} regions."
            )


def upsert(rows: Sequence[models.Model]) -> None:
    """Insert rows, or bring those whose primary key exists up to date."""
    if not rows:
        return
    model = type(rows[0])
    fields = [field.name for field in model._meta.concrete_fields if not field.primary_key]
    model._base_manager.bulk_create(
        rows, update_conflicts=True, unique_fields=[model._meta.pk.name], update_fields=fields, batch_size=BATCH
    )


def progress_bar(total: int) -> tqdm:
    """Return a bar on standard error that shows on a terminal only, and goes when it is done."""
    return tqdm(total=total, desc="Loading airports", unit=" airports", leave=False, disable=None)


def _batches(rows: Sequence[Airport], size: int) -> Iterator[Sequence[Airport]]:
    return (rows[start : start + size] for start in range(0, len(rows), size))
