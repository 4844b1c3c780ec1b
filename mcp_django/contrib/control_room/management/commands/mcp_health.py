"""`manage.py mcp_health`: active alerts, for people and for monitoring."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from mcp_django.contrib.control_room.alert_rules import get_rules
from mcp_django.contrib.control_room.alerts.evaluation import check_alerts
from mcp_django.contrib.control_room.alerts.measurements import measure
from mcp_django.extensions.operators import CleanCommand

ANY = "any"


class Command(CleanCommand):
    """Check the limits now, and print the alerts. With `--fail-on`, fail if one is active and not muted."""

    help = 'Check the limits of MCP["ALERTS"] and print the active alerts. Exit with status 1 for those of --fail-on.'

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--fail-on",
            action="append",
            choices=(ANY, *get_rules()),
            default=[],
            metavar="RULE",
            help="fail if an alert of this rule is active and not muted; may be repeated: "
            + ", ".join((ANY, *get_rules())),
        )
        parser.add_argument("--json", action="store_true", help="print a JSON object, with all measurements")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the alerts, and fail for the given rules."""
        alerts = check_alerts()
        if options["json"]:
            measured = [{"rule": each.rule, "subject": each.subject, "value": each.value} for each in measure()]
            active = [
                {
                    "rule": alert.rule,
                    "subject": alert.subject,
                    "value": alert.value,
                    "limit": alert.limit,
                    "since": None if alert.since is None else alert.since.isoformat(),
                    "muted_until": alert.muted_until.isoformat() if alert.muted_until and alert.is_muted() else None,
                }
                for alert in alerts
            ]
            self.write_json({"alerts": active, "measurements": measured}, indent=None)
        elif not alerts:
            self.stdout.write("No alert is active.")
        else:
            for alert in alerts:
                muted = f", muted until {alert.muted_until:%H:%M:%S} UTC" if alert.is_muted() else ""
                self.stdout.write(f"{alert.rule}: {alert} (since {alert.since:%Y-%m-%d %H:%M:%S} UTC{muted})")

        wanted = [alert for alert in alerts if ANY in options["fail_on"] or alert.rule in options["fail_on"]]
        failing = [alert for alert in wanted if not alert.is_muted()]
        if failing:
            raise CommandError("; ".join(str(alert) for alert in failing))
