"""`manage.py mcp_cleartasks`: maintenance of tasks, for cron."""

from typing import Any

from asgiref.sync import async_to_sync

from mcp_django.contrib.tasks.backend import get_backend
from mcp_django.contrib.tasks.upkeep import maintain_tasks
from mcp_django.extensions.operators import CleanCommand


class Command(CleanCommand):
    """Command that ends lost attempts, cancels expired tasks and deletes old rows.

    With Celery or Django's tasks, it also sends waiting tasks to the workers again.
    """

    help = "End tasks of lost workers, cancel expired tasks, and delete the rows whose retention is over."

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the maintenance once."""
        backend = get_backend()
        counts = async_to_sync(maintain_tasks)(backend, enqueues=backend.delivers_to_workers, is_command=True)
        self.stdout.write(f"Lost: {counts.lost}. Expired: {counts.expired}. Deleted: {counts.deleted}.")
