"""OpenMetrics text: families of samples as lines.

The format is that of https://github.com/prometheus/OpenMetrics, version 1.0.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})

Sample = tuple[str, Mapping[str, str], float]
"""Suffix of the name, labels, and value."""


@dataclass(slots=True)
class MetricFamily:
    """Samples of one metric."""

    name: str
    """Name without suffix. It ends with the unit."""
    type: str
    """"counter", "gauge" or "histogram"."""
    help: str
    unit: str = ""
    samples: list[Sample] = field(default_factory=list)

    def add(self, labels: Mapping[str, str], value: float, created: float | None = None) -> None:
        """Add the value of a gauge, or the total of a counter. `created` is the start of counting, in seconds."""
        self.samples.append(("_total" if self.type == "counter" else "", labels, value))
        if created is not None:
            self.samples.append(("_created", labels, created))

    def add_histogram(
        self, labels: Mapping[str, str], buckets: Sequence[tuple[float, int]], total: float, created: float
    ) -> None:
        """Add a histogram: cumulative counts by upper bound, the last one infinite, and the sum of all values."""
        for bound, count in buckets:
            self.samples.append(("_bucket", {**labels, "le": format_value(bound)}, count))
        self.samples.append(("_count", labels, buckets[-1][1]))
        self.samples.append(("_sum", labels, total))
        self.samples.append(("_created", labels, created))


def iter_lines(families: Iterable[MetricFamily]) -> Iterator[str]:
    """Yield the lines of an exposition, its end included.

    Raises ValueError for the name of a family or label that the format forbids.
    """
    for family in families:
        yield f"# TYPE {_check_name(family.name)} {family.type}\n"
        if family.unit:
            yield f"# UNIT {family.name} {family.unit}\n"
        yield f"# HELP {family.name} {family.help.translate(_ESCAPES)}\n"
        for suffix, labels, value in family.samples:
            yield f"{family.name}{suffix}{_format_labels(labels)} {format_value(value)}\n"
    yield "# EOF\n"


def format_value(value: float) -> str:
    """Return a number as text."""
    if value == float("inf"):
        return "+Inf"
    return repr(value)


def _format_labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    pairs = (f'{_check_name(name)}="{value.translate(_ESCAPES)}"' for name, value in labels.items())
    return "{" + ",".join(pairs) + "}"


def _check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a valid name of a metric or label")
    return name
