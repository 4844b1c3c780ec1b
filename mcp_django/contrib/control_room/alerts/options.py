"""Settings in `MCP["ALERTS"]`."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any

from django.core.exceptions import ValidationError
from django.core.validators import validate_email

from mcp_django.conf import register_settings
from mcp_django.conf.readers import Count, Seconds, WrongValue, find_closest
from mcp_django.contrib.control_room.alert_rules import get_default_limits, get_rules

ADMINS = "admins"
MAX_SHARE = 1.0


def _parse_limits(raw: Any) -> Mapping[str, float]:
    """Return the limits of the rules that are on."""
    if not isinstance(raw, Mapping):
        raise WrongValue("must be a dict of numbers by rule")
    limits = get_default_limits()
    for rule, limit in raw.items():
        if rule not in get_rules():
            raise WrongValue(f"contains the unknown rule {rule!r}", find_closest(rule, get_rules()))
        if limit is None:
            del limits[rule]
            continue
        if not isinstance(limit, int | float) or isinstance(limit, bool) or not math.isfinite(limit) or limit < 0:
            raise WrongValue(f"must have a number of 0 or more for {rule!r}, or None to switch the rule off")
        if rule == "errors" and limit > MAX_SHARE:
            raise WrongValue("must have a share from 0 to 1 for 'errors'")
        limits[rule] = float(limit)
    return MappingProxyType(limits)


def _parse_mail(raw: Any) -> tuple[str, ...] | None:
    """Return the addresses; None for those of ADMINS."""
    if raw == ADMINS:
        return None
    if not isinstance(raw, list | tuple):
        raise WrongValue('must be "admins", or a list of addresses')
    for address in raw:
        try:
            validate_email(address)
        except (ValidationError, TypeError):
            raise WrongValue(f"contains {address!r}, which is no address") from None
    return tuple(raw)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertSettings:
    """`MCP["ALERTS"]`: alerts of the control room."""

    enabled: bool = True
    """Check the limits regularly, in one of the serving processes."""
    limits: Annotated[Mapping[str, float], _parse_limits] = field(default_factory=get_default_limits)
    """Limits by rule; None switches a rule off.

    Shares are from 0 to 1, and times are in seconds.
    """
    mail: Annotated[tuple[str, ...] | None, _parse_mail] = None
    """Addresses that get a mail for each alert: a list, or "admins" for `ADMINS`, the default."""
    interval: Seconds = 30.0
    """Seconds between two checks."""
    window: Seconds = 300.0
    """Seconds of calls that a check covers."""
    min_calls: Count = 20
    """Minimum calls of a tool in that time for an alert about its errors or its slowness."""
    clear_after: Seconds = 120.0
    """Seconds for which a value must stay at or under its limit until the alert is cleared."""


get_alert_settings = register_settings("ALERTS", AlertSettings)
