"""Base class of write operations: confirmation, idempotency and result of a call."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from django.db import DataError, IntegrityError
from django.db.models import Model

from mcp_django.orm.declaration.base import BaseModelToolset
from mcp_django.orm.queries.visibility import VisibilityScope
from mcp_django.orm.rows.lookup import find_rows
from mcp_django.orm.rows.versions import check_version, get_row_version
from mcp_django.orm.writes.arguments import WriteArguments
from mcp_django.orm.writes.confirmation import require_confirmation
from mcp_django.orm.writes.conflicts import build_conflict_error
from mcp_django.orm.writes.transaction import IdempotentWrite, run_write
from mcp_django.protocol.errors import ToolError
from mcp_django.protocol.jsonrpc import JSONObject
from mcp_django.server.context.context import Context
from mcp_django.server.primitives.base import STRICT, Confirmation

ROWS_CHANGED_MESSAGE = "The rows changed before the confirmation, and nothing was done. Get them again"


class WriteOperation(ABC):
    """Base class of actions and of tools that write; `run()` executes the call."""

    def __init__(self, toolset: BaseModelToolset, ctx: Context, arguments: JSONObject, *, name: str) -> None:
        """Prepare the operation of a call.

        `name` is that of the tool or action, as in the toolset's `confirm`.
        """
        self.name = name
        self.toolset = toolset
        self.ctx = ctx
        self.arguments = WriteArguments.from_json(arguments)
        self.using = toolset.db_for_write(ctx)
        self.scope = VisibilityScope(toolset, ctx, self.using)
        self.dry_run = self.arguments.is_dry_run
        self.atomic = True
        self.confirm: Confirmation = toolset.get_confirmation(name)
        self._agreed_versions: tuple[str, ...] | None = None

    @abstractmethod
    def build_question(self) -> tuple[str, tuple[str, ...]]:
        """Build the question for the client's user, and return the versions of the rows that it is about.

        Raises:
            ToolError: the call is invalid, as far as that can be checked without executing it.
        """

    @abstractmethod
    def execute(self) -> JSONObject:
        """Execute the write; called inside the transaction."""

    @classmethod
    def call(cls, name: str, toolset: BaseModelToolset, ctx: Context, arguments: JSONObject) -> Any:
        """Execute a call of a tool; see `run`."""
        return cls(toolset, ctx, arguments, name=name).run()

    def run(self) -> Any:
        """Run the call and return its result as JSON.

        Raises:
            ToolError: the write failed or was refused.
        """
        idempotent_write, key = None, self.arguments.idempotency_key
        if key is not None and not self.dry_run:
            operation = f"{self.toolset.model._meta.label} {self.name}"
            idempotent_write = IdempotentWrite(self.ctx, key, operation, self.arguments.content)
            if (stored_result := idempotent_write.find_result()) is not None:
                return stored_result

        if not self.dry_run and self.confirm:
            message, versions = self.build_question()
            is_strict = self.confirm == STRICT
            require_confirmation(self.toolset, self.ctx, self.name, message, versions, strict=is_strict)
            self._agreed_versions = versions

        if self.dry_run:
            self.ctx.is_rolled_back = True
        try:
            return run_write(
                self.execute,
                using=self.using,
                dry_run=self.dry_run,
                idempotent_write=idempotent_write,
                atomic=self.atomic,
            )
        except (IntegrityError, DataError) as problem:
            raise build_conflict_error(self.toolset, problem) from None

    def find_row(self, has_permission: Callable[..., bool], *, lock: bool) -> Model:
        """Return the row of the arguments `pk` and `if_match`.

        Raises:
            ToolError: the row is missing or has changed, or the caller has no permission.
        """
        row: Model
        (row,) = find_rows(
            self.toolset, self.ctx, [self.arguments.pk], using=self.using, has_permission=has_permission, lock=lock
        )
        check_version(self.scope, row, self.arguments.if_match)
        return row

    def get_versions(self, rows: Sequence[Model]) -> tuple[str, ...]:
        """Return the versions of rows that were read from the database."""
        return tuple(get_row_version(self.scope, row) for row in rows)

    def check_agreed_versions(self, rows: Sequence[Model]) -> None:
        """Check that the rows have not changed since the user confirmed the call.

        Raises:
            ToolError: at least one row has changed.
        """
        if self._agreed_versions is not None and self._agreed_versions != self.get_versions(rows):
            raise ToolError(ROWS_CHANGED_MESSAGE)
