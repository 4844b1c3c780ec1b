"""An extension of a third party, with a method and keys that clients follow."""

from typing import Any

from mcp_django.extensions import Extension, method, subscription

IDENTIFIER = "com.example/counters"
DECLARED = {"extensions": {IDENTIFIER: {}}}


class Counters(Extension):
    """Counters that clients increase."""

    identifier = IDENTIFIER

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    @method("counters/increase")
    def increase(self, name: str, by: int = 1) -> dict[str, Any]:
        self.counts[name] = self.counts.get(name, 0) + by
        return {"name": name, "count": self.counts[name]}

    @subscription("counterNames", notification="notifications/counters")
    def read(self, key: str) -> dict[str, Any] | None:
        return {"name": key, "count": self.counts[key]} if key in self.counts else None
