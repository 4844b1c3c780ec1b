"""Random rows of a project's models."""

from collections.abc import Iterable, Sequence

from django.apps import apps
from django.db import connection, models, transaction
from model_bakery import baker
from model_bakery.generators import default_mapping

ROWS_PER_MODEL = 12


def add_generators(kinds: Iterable[type[models.Model]]) -> None:
    """Let columns of a project's own field classes have the values of the Django classes that they extend."""
    for kind in kinds:
        for column in kind._meta.concrete_fields:
            for base in type(column).__mro__[1:]:
                if base in default_mapping and type(column) not in default_mapping:
                    baker.generators.add(type(column), default_mapping[base])


def add_rows(kinds: Sequence[type[models.Model]]) -> dict[str, str]:
    """Add rows to each model; return the errors of the models that refuse random rows, by label."""
    errors: dict[str, str] = {}
    add_generators(kinds)
    for kind in kinds:
        for _ in range(ROWS_PER_MODEL):
            try:
                with transaction.atomic():
                    baker.make(kind, _create_files=True)
            except Exception as error:  # a rule of the project: its other models have rows
                errors[kind._meta.label] = f"{type(error).__name__}: {error}"[:200]
                break
    return errors


def list_kinds(left_out: Iterable[str] = ()) -> list[type[models.Model]]:
    """Return the models that have a table, without those of the apps in `left_out`."""
    tables = set(connection.introspection.table_names(include_views=True))
    apps_left_out = {"mcp_django", "sessions", *left_out}
    return [
        kind
        for kind in apps.get_models()
        if kind._meta.app_label not in apps_left_out and kind._meta.db_table in tables
    ]
