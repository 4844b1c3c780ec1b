"""Signals of this package. Receivers run in the thread that uses the database; what they raise is logged only."""

from django.dispatch import Signal

session_opened = Signal()
"""A client has opened a session. Sent by the Session model, with `session`, the row."""

session_closed = Signal()
"""A session has ended. Sent by the Session model, with `session`, the row, and `reason`, a word such as an EndReason.

A session that expires is closed when it is noticed, which can be later than its expiry.
"""
