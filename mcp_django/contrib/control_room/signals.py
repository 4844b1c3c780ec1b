"""Signals of the control room."""

from django.dispatch import Signal

alert_raised = Signal()
"""Signal that an alert was raised.

Sent once for each alert, by the process that found it, with `alert`, the row. Its attributes are `rule`, `subject`,
`value`, `limit` and `since`.
"""

chain_sealed = Signal()
"""Signal that rows of calls were sealed (`MCP["RECORD"]["CHAIN"]`).

Sent after each write, in the thread that writes, with the end of the chain: `process`, `number`, `digest` and `at`, the
time of the last call. A receiver that keeps them elsewhere makes later changes of the rows visible to
`mcp_audit verify --anchor`.
"""

alert_cleared = Signal()
"""Signal that an alert is over.

Sent once for each alert, with `alert`, the row.
"""
