"""The workers of these tests, on PostgreSQL and a Redis of their own."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.servers.databases import new_postgres
from tests.support.redis import own_redis
from tests.workers.harness import SITE, Workers, workers
from tests.workers.unreliable_layer import DeliveryFaults


@pytest.fixture(scope="session")
def shared() -> Iterator[Workers]:
    """Two workers for the whole run, because starting them takes a while."""
    with ExitStack() as stack:
        database = stack.enter_context(new_postgres(SITE))
        # As docs/run/deploy.md has it for a project behind `asgi.mount`.
        database["CONN_MAX_AGE"] = 600
        redis = stack.enter_context(own_redis())
        yield stack.enter_context(workers(database, redis))


@pytest.fixture
def pair(shared: Workers) -> Iterator[Workers]:
    """The two workers, which are left as they were found."""
    ports = shared.ports
    yield shared
    shared.set_faults(DeliveryFaults())
    assert shared.ports == ports, "workers that a test ends are its own"


@pytest.fixture
def own_pair(shared: Workers) -> Iterator[Workers]:
    """Two workers of the test's own, on the database and the Redis of the others."""
    with workers(shared.database, shared.redis) as own:
        yield own
