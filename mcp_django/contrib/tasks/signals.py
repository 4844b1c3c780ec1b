"""Signals of tasks. They are sent on a thread after the row was written; receivers may use the ORM."""

from django.dispatch import Signal

task_created = Signal()
"""A task was created. Arguments: `task`, the row."""
task_finished = Signal()
"""A task reached a terminal status. Arguments: `task`, the row."""
