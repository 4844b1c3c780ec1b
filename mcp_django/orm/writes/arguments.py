"""Arguments of the tools and actions that write, as one value.

The arguments of an action's own method stay in `content`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from mcp_django.protocol.jsonrpc import JSONMapping, JSONObject


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteArguments:
    """Arguments of one call, which fit the schema of its tool."""

    pk: object
    """Primary key of the row to write; None for a new row, and for an action with several rows."""
    values: JSONMapping
    """Values by field."""
    inlines: Mapping[str, JSONObject]
    """Changes to inline rows, by inline."""
    if_match: str | None
    """The version that the row must have; None for any version."""
    is_dry_run: bool
    """True if the write is rolled back."""
    idempotency_key: str | None
    content: JSONObject
    """All arguments except the idempotency key, which is valid for these alone."""

    @classmethod
    def from_json(cls, arguments: JSONObject) -> Self:
        """Read the arguments of a call."""
        return cls(
            pk=arguments.get("pk"),
            values=arguments.get("values", {}),
            inlines=arguments.get("inlines") or {},
            if_match=arguments.get("if_match"),
            is_dry_run=bool(arguments.get("dry_run")),
            idempotency_key=arguments.get("idempotency_key"),
            content={name: value for name, value in arguments.items() if name != "idempotency_key"},
        )
