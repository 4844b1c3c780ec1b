"""Command that exports calls."""

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.core.management.base import CommandError
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime

from mcp_django.contrib.control_room.export import FORMATS, iter_lines
from mcp_django.contrib.control_room.models import CallLogEntry, OutcomeChoices
from mcp_django.extensions.operators import CleanCommand

EXAMPLE_DATE = "YYYY-MM-DD"
DEFAULT_PERIOD = timedelta(days=1)


class Command(CleanCommand):
    """Write the recorded calls to the standard output, the oldest first."""

    help = "Export the recorded calls as CSV or JSON lines. Default: those of the last 24 hours."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--since", metavar="TIME", help="date or time in ISO 8601, in the project's time zone")
        parser.add_argument("--format", choices=FORMATS, default="jsonl")
        parser.add_argument("--outcome", choices=OutcomeChoices.values, action="append", help="may be repeated")
        parser.add_argument("--name", help="name of a tool, prompt or resource")
        parser.add_argument("--arguments", action="store_true", help="with the recorded arguments")

    def handle(self, *args: Any, **options: Any) -> None:
        """Stream the rows."""
        records = CallLogEntry.objects.filter(at__gte=_parse_time(options["since"])).order_by("at", "pk")
        if options["outcome"]:
            records = records.filter(outcome__in=options["outcome"])
        if options["name"]:
            records = records.filter(name=options["name"])
        for line in iter_lines(records.iterator(), options["format"], with_arguments=options["arguments"]):
            self.stdout.write(line, ending="")


def _parse_time(text: str | None) -> Any:
    if text is None:
        return timezone.now() - DEFAULT_PERIOD
    try:
        moment = parse_datetime(text)
        if moment is None and (day := parse_date(text)) is not None:
            moment = parse_datetime(f"{day.isoformat()}T00:00:00")
    except ValueError:
        moment = None
    if moment is None:
        raise CommandError(
            f"--since {text!r} is not a time; use a date such as {EXAMPLE_DATE}, or {EXAMPLE_DATE}T12:00"
        )
    return moment if timezone.is_aware(moment) else timezone.make_aware(moment)
