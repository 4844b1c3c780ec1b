"""Fixtures of the tests that use threads."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg_pool
import pytest
from django.db import connection, connections

from tests.runtime.serving import Gate


@pytest.fixture
def gate() -> Iterator[Gate]:
    """Provide a gate that opens at the end of the test."""
    gate = Gate()
    yield gate
    gate.opened.set()


@pytest.fixture
def kept_connections(settings: Any) -> Iterator[None]:
    """Keep connections open between calls, as with CONN_MAX_AGE."""
    databases = connections.settings["default"]
    before = databases["CONN_MAX_AGE"]
    databases["CONN_MAX_AGE"] = None
    yield
    databases["CONN_MAX_AGE"] = before


@pytest.fixture
def pool() -> Iterator[None]:
    """Put psycopg's pool behind all connections, as `OPTIONS["pool"]` does."""
    with pooled():
        yield


@pytest.fixture
def returning_pool() -> Iterator[None]:
    """Provide a pool that takes back closed connections."""
    if "close_returns" not in inspect.signature(psycopg_pool.ConnectionPool).parameters:
        pytest.skip("psycopg_pool has close_returns from 3.3 on")
    with pooled(close_returns=True):
        yield


@contextmanager
def pooled(**more: Any) -> Iterator[None]:
    if connection.vendor != "postgresql":
        pytest.skip("a pool of psycopg's needs PostgreSQL (--ds tests.settings_postgres)")
    options = connections.settings["default"]["OPTIONS"]
    connection.close()
    options["pool"] = {"min_size": 1, "max_size": 5, "timeout": 10, **more}
    yield
    connection.close()
    connection.close_pool()
    del options["pool"]
