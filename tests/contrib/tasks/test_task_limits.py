"""The limit of an owner's tasks, with creators that run at the same time."""

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from django.db import connection

from mcp_django.contrib.tasks.models import Task
from mcp_django.contrib.tasks.options import get_settings
from mcp_django.contrib.tasks.rows import store
from mcp_django.server.ports import Overloaded
from tests.contrib.tasks.creation.test_task_rows import make_task

CREATORS = 12
CALLS_PER_CREATOR = 5
LIMIT = 20


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
def test_the_limit_of_an_owner_is_exact() -> None:
    limits, barrier = dataclasses.replace(get_settings(), tasks_per_owner=LIMIT), Barrier(CREATORS)

    def create_tasks() -> int:
        """Return the number of tasks that were not refused."""
        created = 0
        try:
            for _ in range(CALLS_PER_CREATOR):
                barrier.wait()
                try:
                    store.create(make_task(), {}, limits)
                    created += 1
                except Overloaded:
                    pass
        except BaseException:
            barrier.abort()
            raise
        finally:
            connection.close()
        return created

    with ThreadPoolExecutor(CREATORS) as pool:
        results = [pool.submit(create_tasks) for _ in range(CREATORS)]
    assert sum(result.result() for result in results) == LIMIT
    assert Task.objects.count() == LIMIT
