"""OpenTelemetry metrics of tasks, recorded by the process that creates or ends a task.

- `mcp_django.tasks.created`: number of tasks, by server and tool
- `mcp_django.tasks.duration`: seconds from the call to the end, by server, tool and status; its count is the number of
  ended tasks
- `mcp_django.tasks.attempts`: number of attempts of ended tasks, by server, tool and status

The instruments are those of the configured meter provider. Without the package or a provider, nothing is recorded.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

try:
    from opentelemetry import metrics
except ImportError:
    IS_INSTALLED = False
else:
    IS_INSTALLED = True

from mcp_django.contrib.tasks.models import Task
from mcp_django.contrib.tasks.signals import task_created, task_finished

UID = "mcp_django.contrib.tasks.rows.metrics"
DURATION_BOUNDS_SECONDS = (1, 5, 15, 60, 300, 900, 3600, 14400)
"""Bounds of the buckets of durations."""


class Instruments(NamedTuple):
    """Instruments of one meter provider."""

    created: metrics.Counter
    duration: metrics.Histogram
    attempts: metrics.Counter


def connect() -> None:
    """Record tasks from now on, if OpenTelemetry is installed."""
    if IS_INSTALLED:
        task_created.connect(_on_created, dispatch_uid=UID)
        task_finished.connect(_on_finished, dispatch_uid=UID)


@functools.lru_cache(maxsize=4)
def _create_instruments(provider: metrics.MeterProvider) -> Instruments:
    meter = provider.get_meter("mcp_django")
    return Instruments(
        meter.create_counter("mcp_django.tasks.created", unit="{task}", description="Created tasks"),
        meter.create_histogram(
            "mcp_django.tasks.duration",
            unit="s",
            description="Time from the call to the end of a task",
            explicit_bucket_boundaries_advisory=DURATION_BOUNDS_SECONDS,
        ),
        meter.create_counter("mcp_django.tasks.attempts", unit="{attempt}", description="Attempts of ended tasks"),
    )


def _on_created(task: Task, **kwargs: Any) -> None:
    instruments = _create_instruments(metrics.get_meter_provider())
    instruments.created.add(1, _get_attributes(task))


def _on_finished(task: Task, **kwargs: Any) -> None:
    instruments = _create_instruments(metrics.get_meter_provider())
    attributes = {**_get_attributes(task), "mcp_django.task.status": str(task.status)}
    if task.finished is not None:
        instruments.duration.record((task.finished - task.created).total_seconds(), attributes)
    instruments.attempts.add(task.attempts, attributes)


def _get_attributes(task: Task) -> dict[str, str]:
    return {"mcp_django.server": task.server, "gen_ai.tool.name": task.tool}
