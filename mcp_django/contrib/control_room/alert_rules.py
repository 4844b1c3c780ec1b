"""Rules of alerts, which other apps register as well.

An app registers its rules in `AppConfig.ready`, whether the control room is installed or not.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from mcp_django.conf import clear_cache


@dataclass(frozen=True, slots=True)
class Measurement:
    """Value of a rule for one subject."""

    rule: str
    subject: str
    """Tool, process or server; empty for the whole project."""
    value: float
    is_total: bool = False
    """True for a total that only grows. Its increase since the last check counts."""


Measure = Callable[[datetime], Iterable[Measurement]]
"""Function of the time of the check, which yields the measurements of its rules."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleDefinition:
    """Rule of an alert, which is raised above a limit."""

    name: str
    label: Any
    """Name of the value, translated."""
    limit: float
    """Limit without a setting."""
    raise_delay_seconds: float = 0.0
    """Seconds for which a value must be above its limit until the alert is raised."""
    time_text: Any = ""
    """Text about a value in seconds, with `%(value)s` and `%(limit)s`; empty for another value."""


_RULES: dict[str, RuleDefinition] = {}
_MEASURES: dict[Measure, frozenset[str]] = {}


def register_rules(measure: Measure, *rules: RuleDefinition) -> None:
    """Register rules, and the function that measures them. Raises ValueError for a name that is taken."""
    for rule in rules:
        if _RULES.setdefault(rule.name, rule) != rule:
            raise ValueError(f"The rule {rule.name!r} of alerts is already in use")
    _MEASURES[measure] = frozenset(rule.name for rule in rules)
    clear_cache()  # Settings that were read before have no limits of these rules.


def get_rules() -> Mapping[str, RuleDefinition]:
    """Return all rules by their names."""
    return _RULES


def get_default_limits() -> dict[str, float]:
    """Return the limits of all rules without a setting."""
    return {rule.name: rule.limit for rule in _RULES.values()}


def iter_measurements(limits: Mapping[str, float], now: datetime) -> Iterator[Measurement]:
    """Yield the measurements of the rules that have limits."""
    for measure, names in _MEASURES.items():
        if names.isdisjoint(limits):
            continue
        for measurement in measure(now):
            if measurement.rule in limits:
                yield measurement
