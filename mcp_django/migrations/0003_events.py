"""The log of events, its sequence, and the rows of subscriptions, of once() and of spent states."""

import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("mcp_django", "0002_session_counts"),
    ]

    operations = [
        migrations.CreateModel(
            name="EventSequence",
            fields=[
                ("id", models.PositiveSmallIntegerField(default=1, primary_key=True, serialize=False)),
                ("last", models.PositiveBigIntegerField(default=0, verbose_name="latest number")),
            ],
            options={
                "verbose_name": "event sequence",
                "verbose_name_plural": "event sequences",
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="OnceResult",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("key_hash", models.CharField(editable=False, max_length=64, unique=True, verbose_name="key hash")),
                ("owner", models.CharField(max_length=255, verbose_name="owner")),
                ("claimed_at", models.DateTimeField(default=django.utils.timezone.now, verbose_name="claimed")),
                ("done_at", models.DateTimeField(blank=True, null=True, verbose_name="done")),
                ("result", models.JSONField(blank=True, null=True, verbose_name="result")),
                ("expires", models.DateTimeField(db_index=True, verbose_name="expires")),
            ],
            options={
                "verbose_name": "result of once()",
                "verbose_name_plural": "results of once()",
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="SpentState",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("digest", models.CharField(editable=False, max_length=64, unique=True, verbose_name="digest")),
                ("expires", models.DateTimeField(db_index=True, verbose_name="expires")),
            ],
            options={
                "verbose_name": "spent state",
                "verbose_name_plural": "spent states",
                "default_permissions": (),
            },
        ),
        # Numbers belong to the log, not to a session.
        migrations.RemoveField(
            model_name="session",
            name="next_seq",
        ),
        migrations.AddField(
            model_name="session",
            name="lists",
            field=models.JSONField(blank=True, default=dict, editable=False, verbose_name="lists"),
        ),
        migrations.CreateModel(
            name="StreamEvent",
            fields=[
                ("seq", models.PositiveBigIntegerField(primary_key=True, serialize=False, verbose_name="number")),
                ("topic", models.CharField(max_length=191, verbose_name="topic")),
                ("kind", models.CharField(max_length=32, verbose_name="kind")),
                ("payload", models.TextField(verbose_name="payload")),
                ("created", models.DateTimeField(default=django.utils.timezone.now, verbose_name="created")),
            ],
            options={
                "verbose_name": "event",
                "verbose_name_plural": "events",
                "default_permissions": (),
                "indexes": [models.Index(fields=["topic", "seq"], name="mcp_event_topic_seq")],
            },
        ),
        migrations.CreateModel(
            name="ResourceSubscription",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("uri", models.TextField(verbose_name="URI")),
                ("uri_hash", models.CharField(editable=False, max_length=64, verbose_name="hash of the URI")),
                ("since", models.PositiveBigIntegerField(default=0, verbose_name="from event")),
                (
                    "session",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="subscriptions",
                        to="mcp_django.session",
                        verbose_name="session",
                    ),
                ),
            ],
            options={
                "verbose_name": "resource subscription",
                "verbose_name_plural": "resource subscriptions",
                "default_permissions": (),
                "constraints": [
                    models.UniqueConstraint(fields=("session", "uri_hash"), name="mcp_subscription_session_uri")
                ],
            },
        ),
    ]
