from typing import Any

from django.db import migrations

INDEX = "mcp_memory_fact_search"


def create(apps: Any, schema_editor: Any) -> None:
    """The index of the full-text search, where there is one. No index of the model's: other databases have no GIN."""
    if schema_editor.connection.vendor == "postgresql":
        table, words = map(schema_editor.quote_name, ("mcp_memory_fact", "words"))
        schema_editor.execute(f"CREATE INDEX {INDEX} ON {table} USING gin (to_tsvector('simple'::regconfig, {words}))")


def drop(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(f"DROP INDEX IF EXISTS {INDEX}")


class Migration(migrations.Migration):
    dependencies = [("mcp_memory", "0001_initial")]

    operations = [migrations.RunPython(create, drop)]
