"""`manage.py mcp_cleartasks`: maintenance of tasks, for cron."""

from typing import Any

from asgiref.sync import async_to_sync
from django.core.management.base import BaseCommand

from mcp_django.contrib.tasks import upkeep
from mcp_django.contrib.tasks.rows import leases, store


class Command(BaseCommand):
    """Command that ends lost attempts, cancels expired tasks and deletes old rows."""

    help = "End tasks of lost workers, cancel expired tasks, and delete the rows whose retention is over."

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the maintenance once. Tasks that may run again wait for a serving process or a worker."""
        lost, expired, deleted = async_to_sync(self._clear)()
        self.stdout.write(f"Lost: {lost}. Expired: {expired}. Deleted: {deleted}.")

    async def _clear(self) -> tuple[int, int, int]:
        lost = await store.run_on_rows(leases.end_lost_attempts)
        expired = await store.run_on_rows(leases.cancel_expired)
        return len(lost), len(expired), await upkeep.delete_old_tasks()
