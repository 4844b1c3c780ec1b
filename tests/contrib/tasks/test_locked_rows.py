"""Rows that another transaction has locked: a heartbeat and the maintenance of tasks never wait for them."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.utils import timezone

from mcp_django.contrib.tasks.models import Task, TaskStatus
from mcp_django.contrib.tasks.rows import leases, store
from tests.contrib.tasks.creation.test_task_rows import save_task
from tests.support.waiting import WAIT_SECONDS

pytestmark = [pytest.mark.postgres, pytest.mark.django_db(transaction=True)]


@contextmanager
def commit_late(task: Task) -> Iterator[None]:
    """Store the result of a task on another connection, and commit after the block."""
    stored, may_commit = threading.Event(), threading.Event()

    def run() -> None:
        try:
            with transaction.atomic():
                assert store.commit_result(task.pk, task.worker, {"result": "{}"}) is True
                stored.set()
                assert may_commit.wait(WAIT_SECONDS)
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    assert stored.wait(WAIT_SECONDS)
    try:
        with connection.cursor() as cursor:  # a statement that waits is an error, which no test has to wait for
            cursor.execute("SET lock_timeout = '1s'")
        yield
    finally:
        may_commit.set()
        thread.join(WAIT_SECONDS)
        connection.close()


def claim(number: int) -> Task:
    claimed = leases.claim_task(save_task(max_losses=1).pk, worker=f"w{number}", lease=30)
    assert claimed is not None
    return claimed


def test_a_tool_that_is_about_to_commit_delays_no_heartbeat_of_another_one() -> None:
    committed, other, lost = (claim(number) for number in range(3))
    Task.objects.filter(pk=lost.pk).update(worker="another")
    with commit_late(committed):
        extension = store.extend_leases({(task.pk, task.worker) for task in (committed, other, lost)}, 60)
    assert extension == ({(other.pk, other.worker)}, {(lost.pk, lost.worker)})


def test_a_tool_that_is_about_to_commit_is_not_ended_as_lost() -> None:
    """Its row would be given up as soon as it is committed, and the tool would run again."""
    committed, lost = claim(1), claim(2)
    Task.objects.update(lease_expires=timezone.now() - timedelta(minutes=1))
    with commit_late(committed):
        assert [task.pk for task in leases.end_lost_attempts()] == [lost.pk]
    (row,) = leases.end_lost_attempts()
    assert (row.pk, row.status, row.losses) == (committed.pk, TaskStatus.COMPLETED, 0)
