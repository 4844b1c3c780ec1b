"""`manage.py mcp_taskhealth`: figures of tasks and workers, for monitoring."""

from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandError

from mcp_django.contrib.tasks.rows.figures import TaskFigures, read_figures
from mcp_django.extensions.operators import CleanCommand


class Command(CleanCommand):
    """Print the figures of tasks. With limits, fail if one of them is exceeded."""

    help = "Print the number of waiting and running tasks, lost attempts and workers. Fail above a limit."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="print a JSON object")
        parser.add_argument("--max-wait", type=float, metavar="SECONDS", help="fail if a task has waited for longer")
        parser.add_argument("--min-workers", type=int, metavar="N", help="fail if fewer worker processes are alive")
        parser.add_argument("--max-lost", type=int, metavar="N", help="fail if more attempts were lost in an hour")

    def handle(self, *args: Any, **options: Any) -> None:
        figures = read_figures()
        values = asdict(figures)
        if options["json"]:
            self.write_json(values, indent=None)
        else:
            for name, value in values.items():
                self.stdout.write(f"{name.replace('_', ' ')}: {value:g}")

        problems = list(self._find_problems(figures, options))
        if problems:
            raise CommandError("; ".join(problems))

    def _find_problems(self, figures: TaskFigures, options: dict[str, Any]) -> list[str]:
        limits = options["max_wait"], options["min_workers"], options["max_lost"]
        max_wait, min_workers, max_lost = limits
        found = []
        if max_wait is not None and figures.oldest_waiting_seconds > max_wait:
            found.append(f"a task has waited for {figures.oldest_waiting_seconds:.0f} s, above {max_wait:g} s")
        if min_workers is not None and figures.workers < min_workers:
            found.append(f"{figures.workers} workers are alive, fewer than {min_workers}")
        if max_lost is not None and figures.lost_attempts > max_lost:
            found.append(f"{figures.lost_attempts} attempts were lost in an hour, more than {max_lost}")
        return found
