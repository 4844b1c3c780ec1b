from typing import Any

import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

INDEX = "mcp_memory_fact_search"


def create_search_index(apps: Any, schema_editor: Any) -> None:
    """Create the index of the full-text search on PostgreSQL.

    The model does not declare it, because other databases have no GIN.
    """
    if schema_editor.connection.vendor == "postgresql":
        table, words = map(schema_editor.quote_name, ("mcp_memory_fact", "words"))
        schema_editor.execute(f"CREATE INDEX {INDEX} ON {table} USING gin (to_tsvector('simple'::regconfig, {words}))")


def drop_search_index(apps: Any, schema_editor: Any) -> None:
    """Drop the index of the full-text search."""
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(f"DROP INDEX IF EXISTS {INDEX}")


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Owner",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("key_hash", models.CharField(editable=False, max_length=64, unique=True, verbose_name="key hash")),
                ("key", models.TextField(editable=False, verbose_name="key")),
                (
                    "created",
                    models.DateTimeField(default=django.utils.timezone.now, editable=False, verbose_name="created"),
                ),
                (
                    "written",
                    models.DateTimeField(
                        default=django.utils.timezone.now, editable=False, verbose_name="last written"
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="user",
                    ),
                ),
            ],
            options={
                "verbose_name": "owner",
                "verbose_name_plural": "owners",
                "ordering": ["-written", "-pk"],
            },
        ),
        migrations.CreateModel(
            name="Fact",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=100, verbose_name="id")),
                ("tags", models.TextField(blank=True, default="", editable=False, verbose_name="tags")),
                ("words", models.TextField(blank=True, default="", editable=False, verbose_name="words")),
                ("size", models.PositiveIntegerField(default=0, editable=False, verbose_name="bytes")),
                ("lifetime", models.DurationField(blank=True, editable=False, null=True, verbose_name="lifetime")),
                (
                    "created",
                    models.DateTimeField(default=django.utils.timezone.now, editable=False, verbose_name="created"),
                ),
                (
                    "updated",
                    models.DateTimeField(default=django.utils.timezone.now, editable=False, verbose_name="updated"),
                ),
                (
                    "expires",
                    models.DateTimeField(blank=True, db_index=True, editable=False, null=True, verbose_name="expires"),
                ),
                ("text", models.TextField(verbose_name="text")),
                ("category", models.CharField(blank=True, default="", max_length=50, verbose_name="category")),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="%(class)ss",
                        to="mcp_memory.owner",
                        verbose_name="owner",
                    ),
                ),
            ],
            options={
                "verbose_name": "fact",
                "verbose_name_plural": "facts",
                "ordering": ["-updated", "-pk"],
                "indexes": [models.Index(fields=["owner", "-updated", "-id"], name="mcp_memory_fact_list")],
                "constraints": [models.UniqueConstraint(fields=("owner", "name"), name="mcp_memory_fact_name")],
            },
        ),
        migrations.CreateModel(
            name="Conversation",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=100, verbose_name="id")),
                ("tags", models.TextField(blank=True, default="", editable=False, verbose_name="tags")),
                ("words", models.TextField(blank=True, default="", editable=False, verbose_name="words")),
                ("size", models.PositiveIntegerField(default=0, editable=False, verbose_name="bytes")),
                ("lifetime", models.DurationField(blank=True, editable=False, null=True, verbose_name="lifetime")),
                (
                    "created",
                    models.DateTimeField(default=django.utils.timezone.now, editable=False, verbose_name="created"),
                ),
                (
                    "updated",
                    models.DateTimeField(default=django.utils.timezone.now, editable=False, verbose_name="updated"),
                ),
                (
                    "expires",
                    models.DateTimeField(blank=True, db_index=True, editable=False, null=True, verbose_name="expires"),
                ),
                ("title", models.CharField(blank=True, default="", max_length=200, verbose_name="title")),
                ("messages", models.JSONField(blank=True, default=list, verbose_name="messages")),
                ("message_count", models.PositiveIntegerField(default=0, editable=False, verbose_name="messages")),
                ("metadata", models.JSONField(blank=True, default=dict, verbose_name="metadata")),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="%(class)ss",
                        to="mcp_memory.owner",
                        verbose_name="owner",
                    ),
                ),
            ],
            options={
                "verbose_name": "conversation",
                "verbose_name_plural": "conversations",
                "ordering": ["-updated", "-pk"],
                "indexes": [models.Index(fields=["owner", "-updated", "-id"], name="mcp_memory_conversation_list")],
                "constraints": [models.UniqueConstraint(fields=("owner", "name"), name="mcp_memory_conversation_name")],
            },
        ),
        migrations.RunPython(create_search_index, drop_search_index),
    ]
