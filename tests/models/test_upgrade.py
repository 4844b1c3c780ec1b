"""Upgrades: rows of every table are the same after `migrate`, on SQLite and PostgreSQL."""

import datetime
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.db import DEFAULT_DB_ALIAS, connections, models
from django.db.migrations.executor import MigrationExecutor
from pytest_django.plugin import DjangoDbBlocker

from tests.support import services
from tests.support.databases import execute

ALIAS = "upgrade"
LABELS = tuple(
    config.label
    for config in apps.get_app_configs()
    if config.name.startswith("mcp_django") and any(config.get_models())
)
"""Apps of the package that have tables."""
NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
TEXT = "äöü %s 'quoted'"
REMOVED = {"mcp_django.Session": {"next_seq"}}
"""Columns that a migration removed."""
pytestmark = pytest.mark.slow
Rows = dict[str, list[dict[str, Any]]]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database(request: pytest.FixtureRequest, tmp_path: Path, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """An empty database, which Django knows as `ALIAS`."""
    name = f"upgrade_{uuid.uuid4().hex}"
    is_postgres = request.param == "postgres"
    if is_postgres:
        execute(services.POSTGRES_URL, f"CREATE DATABASE {name}")
        entry = services.postgres_database() | {"NAME": name}
    else:
        entry = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / name)}
    connections.databases[ALIAS] = {**connections.databases[DEFAULT_DB_ALIAS], "OPTIONS": {}, **entry}
    try:
        with django_db_blocker.unblock():
            yield
            connections[ALIAS].close()
    finally:
        del connections[ALIAS]
        del connections.databases[ALIAS]
        if is_postgres:
            execute(services.POSTGRES_URL, f"DROP DATABASE {name} WITH (FORCE)")


class Upgrade:
    """Migrations of the package, one target after another, with rows that are written on the way."""

    def __init__(self) -> None:
        self.apps = self.migrate([])
        self.rows: Rows = {}
        self.unwritten: set[str] = set()

    def migrate(self, targets: list[tuple[str, str]]) -> Any:
        """Migrate to targets, and return the models as they are there."""
        executor = MigrationExecutor(connections[ALIAS])
        everything = executor.loader.graph.leaf_nodes()
        others = [node for node in everything if node[0] not in LABELS]
        executor.migrate([*others, *targets])
        executor.loader.build_graph()
        return executor._create_project_state(with_applied_migrations=True).apps

    def proceed(self, targets: list[tuple[str, str]]) -> None:
        """Migrate to targets, and check that each row is as it was."""
        self.apps = self.migrate(targets)
        for label, rows in self.rows.items():
            model = self.apps.get_model(label)
            columns = {field.attname for field in model._meta.concrete_fields}
            assert rows[0].keys() - columns <= REMOVED.get(label, set()), label
            found = model._base_manager.using(ALIAS).values(*(rows[0].keys() & columns))
            assert list(found) == [{name: row[name] for name in row if name in columns} for row in rows], label

    def fill(self) -> None:
        """Write a row into each table that has none, and remember all of them."""
        own = [model for label in LABELS for model in self.apps.all_models[label].values()]
        for model in own:
            self.find_or_create(model)
        self.rows = {model._meta.label: list(model._base_manager.using(ALIAS).values()) for model in own}
        assert [label for label, rows in self.rows.items() if not rows] == []

    def find_or_create(self, model: type[models.Model]) -> models.Model:
        """Return a row of a model; a row of another app has the required values only."""
        manager = model._base_manager.using(ALIAS)
        row = manager.first()
        if row is None:
            self.unwritten.add(model._meta.label)
            fields = [field for field in model._meta.concrete_fields if not isinstance(field, models.AutoField)]
            if model._meta.app_label not in LABELS:
                fields = [field for field in fields if not (field.null or field.has_default())]
            row = manager.create(**{field.name: self.build_value(field) for field in fields})
            self.unwritten.remove(model._meta.label)
        return row

    def build_value(self, field: Any) -> Any:
        """Return a value for a field that differs from its default where its type allows it."""
        if field.remote_field:
            label = field.related_model._meta.label
            # Two tables that refer to each other: the second row leaves its relation empty.
            return None if label in self.unwritten else self.find_or_create(self.apps.get_model(label))
        if field.choices:
            return field.choices[-1][0]
        for kind, value in VALUES:
            if isinstance(field, kind):
                return value[: field.max_length] if isinstance(value, str) else value
        raise AssertionError(f"There is no value for {field!r}.")


VALUES: list[tuple[type[Any], Any]] = [
    (models.BooleanField, True),
    (models.DateTimeField, NOW),
    (models.UUIDField, uuid.UUID(int=7)),
    (models.URLField, "https://kept.example/path"),
    (models.CharField, TEXT),
    (models.TextField, TEXT * 50),
    (models.JSONField, {"kept": [1, None, TEXT]}),
    (models.BinaryField, b"\x00kept\xff"),
    (models.DurationField, datetime.timedelta(days=3, seconds=7)),
    (models.FloatField, 0.25),
    (models.GenericIPAddressField, "2001:db8::7"),
    (models.IntegerField, 7),
]


def list_targets() -> list[tuple[str, str]]:
    """List the migrations of the package in the order in which `migrate` applies them to an empty database."""
    graph = MigrationExecutor(connections[ALIAS]).loader.graph
    plan: list[tuple[str, str]] = []
    for leaf in sorted(graph.leaf_nodes()):
        plan += [node for node in graph.forwards_plan(leaf) if node not in plan]
    return [node for node in plan if node[0] in LABELS]


def list_tables() -> set[str]:
    """List the labels of all models of the package, those of many-to-many relations included."""
    configs = [apps.get_app_config(label) for label in LABELS]
    return {model._meta.label for config in configs for model in config.get_models(include_auto_created=True)}


def get_newest(targets: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the last target of each app."""
    return list(dict(targets).items())


@pytest.mark.usefixtures("database")
def test_rows_of_every_table_survive_each_migration() -> None:
    targets = list_targets()
    upgrade = Upgrade()
    for count in range(1, len(targets) + 1):
        upgrade.proceed(get_newest(targets[:count]))
        upgrade.fill()
    assert upgrade.rows.keys() == list_tables()


@pytest.mark.usefixtures("database")
def test_rows_of_every_table_survive_the_migrations_since_the_state_before() -> None:
    targets = list_targets()
    newest = get_newest(targets)
    upgrade = Upgrade()
    before = get_newest([target for target in targets if target not in newest])
    if before:  # otherwise each app has one migration
        upgrade.proceed(before)
        upgrade.fill()
    upgrade.proceed(newest)
    upgrade.fill()
    assert len(upgrade.rows) >= 32
