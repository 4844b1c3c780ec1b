"""Rates: a number of uses per period, such as "10/m" for ten per minute."""

import re
from typing import Any, NamedTuple

_RATE = re.compile(r"([1-9]\d{0,8})/([1-9]\d{0,4})?(s|sec|seconds?|m|min|minutes?|h|hours?|d|days?)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
RATE_FORMAT = "a rate such as '10/m': a number, a slash, and s, m, h or d, or several of these, such as '5/15m'"
"""Description of the accepted format, for messages."""


class Rate(NamedTuple):
    """A maximum number of uses in a number of seconds."""

    times: int
    seconds: int

    @classmethod
    def parse(cls, text: Any) -> "Rate":
        """Parse "10/s", "10/m", "100/h", "1000/d" or, for several units, "5/15m".

        Raises ValueError.
        """
        matched = _RATE.fullmatch(text.strip()) if isinstance(text, str) else None
        if matched is None:
            raise ValueError(f"Invalid rate {text!r}; write {RATE_FORMAT}")
        times, unit_count, unit = matched.groups()
        return cls(int(times), int(unit_count or 1) * _SECONDS[unit[0]])

    def __str__(self) -> str:
        for unit, seconds in reversed(_SECONDS.items()):
            if self.seconds % seconds == 0:
                unit_count = self.seconds // seconds
                return f"{self.times}/{unit_count if unit_count > 1 else ''}{unit}"
        raise AssertionError("every period is a multiple of one second")
