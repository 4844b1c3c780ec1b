"""Command that runs tasks in a process of their own."""

import asyncio
import signal
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError
from django.db import Error

from mcp_django.contrib.tasks.models import Task
from mcp_django.contrib.tasks.options import get_settings
from mcp_django.contrib.tasks.worker import WorkerOptions, WorkerProcess, WorkerStartError, parse_queues
from mcp_django.extensions.operators import CleanCommand
from mcp_django.transports.stdio.stdio import exit_after

EXIT_TIMEOUT_SECONDS = 5.0
"""Seconds until a stopped process exits, even if threads of tools still run."""


class Command(CleanCommand):
    """Run waiting tasks until SIGTERM or SIGINT. The second signal cancels the running ones."""

    help = "Run waiting tasks of MCP clients. Start any number of these processes."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--queue", action="append", metavar="NAME", help="run only this queue; may be repeated (default: all)"
        )
        parser.add_argument(
            "--concurrency", type=int, metavar="N", help='tasks at once (default: MCP["TASKS"]["CONCURRENCY"])'
        )
        parser.add_argument(
            "--poll", type=float, default=0.5, metavar="SECONDS", help="search interval while no task waits"
        )
        parser.add_argument(
            "--drain", type=float, default=30.0, metavar="SECONDS", help="time for running tasks after a signal"
        )
        parser.add_argument("--burst", action="store_true", help="end as soon as no task waits")

    def handle(self, *args: Any, **options: Any) -> None:
        concurrency = get_settings().concurrency if options["concurrency"] is None else options["concurrency"]
        if concurrency < 1 or options["poll"] <= 0 or options["drain"] < 0:
            raise CommandError("--concurrency must be at least 1, --poll above 0, and --drain not negative")
        try:
            Task.objects.exists()
        except Error as problem:
            raise CommandError(f"The tasks cannot be read; run manage.py migrate: {problem}".rstrip()) from problem

        settings = WorkerOptions(
            queues=parse_queues(options["queue"]),
            concurrency=concurrency,
            poll=options["poll"],
            drain=options["drain"],
            is_burst=options["burst"],
        )
        queues = ", ".join(settings.queues or ("all",))
        self.stdout.write(f"Running tasks of these queues: {queues}; {concurrency} at once. Stop with Ctrl-C.")
        try:
            ended = asyncio.run(self._run(settings))
        except WorkerStartError as problem:
            raise CommandError(str(problem)) from problem
        self.stdout.write(f"{ended} attempts ended.")

    async def _run(self, options: WorkerOptions) -> int:
        worker = WorkerProcess(options)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, worker.stop)
        try:
            return await worker.run()
        finally:
            if worker.is_stopping:
                exit_after(EXIT_TIMEOUT_SECONDS, 0)
