"""Base class of write operations: confirmation, idempotency and result of a call."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from django.db.models import Model

from mcp_django.orm.writes.confirmation import confirmed
from mcp_django.orm.writes.etags import version_of
from mcp_django.orm.writes.idempotency import LONGEST, Repeat
from mcp_django.orm.writes.transaction import perform
from mcp_django.protocol.errors import ToolError
from mcp_django.server.context.context import Context

if TYPE_CHECKING:
    from mcp_django.orm.toolset import ModelToolset

DRY_RUN = {
    "type": "boolean",
    "description": "Only try: everything is checked and done, then taken back. Says what would happen",
}
IDEMPOTENCY_KEY = {
    "type": "string",
    "minLength": 1,
    "maxLength": LONGEST,
    "description": "A text of your own, new for each intended write. A repeated call with the same key is not done "
    "again: it gets the answer of the first",
}
IF_MATCH = {
    "type": "string",
    "maxLength": 200,
    "description": "_version of the row as you have seen it; nothing is done if it has changed since",
}
CHANGED = "The rows changed before the confirmation, and nothing was done. Get them again"


class Write(ABC):
    """Base class of actions and of tools that write; `run()` executes the call."""

    name: str
    """Name of the tool or action, as in the toolset's `confirm`."""

    def __init__(self, toolset: "ModelToolset", ctx: Context, arguments: dict[str, Any]) -> None:
        self.toolset, self.ctx, self.arguments = toolset, ctx, arguments
        self.using = toolset.db_for_write(ctx)
        self.dry_run = bool(arguments.get("dry_run"))
        self.atomic = True
        self.confirm = getattr(self, "name", None) in toolset.confirm
        self._agreed: tuple[str, ...] | None = None

    @abstractmethod
    def question(self) -> tuple[str, Sequence[Model]]:
        """Build the question for the client's user, and return the rows that it is about.

        Raises:
            ToolError: the call is invalid, as far as that can be checked without executing it.
        """

    @abstractmethod
    def work(self) -> dict[str, Any]:
        """Execute the write; called inside the transaction."""

    def answer(self) -> Any:
        """Run the call and return its result as JSON.

        Raises:
            ToolError: the write failed or was refused.
        """
        repeat = self._repeat()
        if repeat is not None and (earlier := repeat.earlier()) is not None:
            return earlier

        if not self.dry_run and self.confirm:
            message, rows = self.question()
            versions = tuple(version_of(self.toolset, row) for row in rows)
            confirmed(self.toolset, self.ctx, self.name, message, versions)
            self._agreed = versions

        return perform(self.work, using=self.using, dry_run=self.dry_run, repeat=repeat, atomic=self.atomic)

    def require_agreed(self, rows: Sequence[Model]) -> None:
        """Check that the rows have not changed since the user confirmed the call.

        Raises:
            ToolError: at least one row has changed.
        """
        if self._agreed is not None and self._agreed != tuple(version_of(self.toolset, row) for row in rows):
            raise ToolError(CHANGED)

    def _repeat(self) -> Repeat | None:
        key = self.arguments.get("idempotency_key")
        if key is None or self.dry_run:
            return None
        what = f"{self.toolset.model._meta.label} {self.name}"
        return Repeat(self.ctx, key, what, {name: v for name, v in self.arguments.items() if name != "idempotency_key"})
