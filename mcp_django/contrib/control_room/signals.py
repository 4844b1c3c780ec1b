"""Signals of the control room."""

from django.dispatch import Signal

alert_raised = Signal()
"""Signal that an alert was raised.

Sent once for each alert, by the process that found it, with `alert`, the row. Its attributes are `rule`, `subject`,
`value`, `limit` and `since`.
"""

alert_cleared = Signal()
"""Signal that an alert is over.

Sent once for each alert, with `alert`, the row.
"""
