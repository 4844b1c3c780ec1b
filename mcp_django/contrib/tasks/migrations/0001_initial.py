import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

import mcp_django.contrib.tasks.models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="OwnerLock",
            fields=[
                ("id", models.PositiveSmallIntegerField(primary_key=True, serialize=False)),
                ("used", models.DateTimeField(default=django.utils.timezone.now, verbose_name="last use")),
            ],
            options={
                "verbose_name": "lock of task owners",
                "verbose_name_plural": "locks of task owners",
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="TaskWorker",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("host", models.CharField(max_length=255, verbose_name="host")),
                ("pid", models.PositiveBigIntegerField(verbose_name="process ID")),
                ("queues", models.TextField(blank=True, verbose_name="queues")),
                ("concurrency", models.PositiveIntegerField(verbose_name="tasks at once")),
                ("running", models.PositiveIntegerField(default=0, verbose_name="running tasks")),
                ("finished", models.PositiveBigIntegerField(default=0, verbose_name="ended attempts")),
                ("started", models.DateTimeField(default=django.utils.timezone.now, verbose_name="started")),
                (
                    "seen",
                    models.DateTimeField(db_index=True, default=django.utils.timezone.now, verbose_name="last report"),
                ),
            ],
            options={
                "verbose_name": "task worker",
                "verbose_name_plural": "task workers",
                "default_permissions": ("view",),
            },
        ),
        migrations.CreateModel(
            name="Task",
            fields=[
                (
                    "id",
                    models.CharField(
                        default=mcp_django.contrib.tasks.models.create_task_id,
                        max_length=32,
                        primary_key=True,
                        serialize=False,
                        verbose_name="id",
                    ),
                ),
                ("owner_hash", models.CharField(max_length=64, verbose_name="owner digest")),
                ("owner", models.CharField(max_length=255, verbose_name="owner")),
                ("session", models.BigIntegerField(blank=True, null=True, verbose_name="session")),
                ("server", models.CharField(max_length=64, verbose_name="server")),
                ("tool", models.CharField(max_length=128, verbose_name="tool")),
                ("arguments", models.TextField(verbose_name="arguments")),
                ("context", models.TextField(verbose_name="context")),
                (
                    "origin",
                    models.CharField(
                        choices=[("extension", "tasks extension"), ("core", "core tasks")],
                        max_length=16,
                        verbose_name="origin",
                    ),
                ),
                ("revision", models.CharField(max_length=16, verbose_name="revision")),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("working", "working"),
                            ("input_required", "input required"),
                            ("completed", "completed"),
                            ("failed", "failed"),
                            ("cancelled", "cancelled"),
                        ],
                        default="working",
                        max_length=16,
                        verbose_name="status",
                    ),
                ),
                ("status_message", models.CharField(blank=True, max_length=1000, verbose_name="status message")),
                ("progress", models.FloatField(blank=True, null=True, verbose_name="progress")),
                ("total", models.FloatField(blank=True, null=True, verbose_name="total")),
                ("result", models.TextField(blank=True, verbose_name="result")),
                ("error", models.TextField(blank=True, verbose_name="error")),
                ("input_requests", models.TextField(blank=True, verbose_name="open questions")),
                ("is_error", models.BooleanField(default=False, verbose_name="result is an error")),
                ("is_followed", models.BooleanField(default=False, verbose_name="followed")),
                ("ttl_ms", models.BigIntegerField(verbose_name="time to live in milliseconds")),
                ("poll_ms", models.PositiveIntegerField(verbose_name="poll interval in milliseconds")),
                ("queue", models.CharField(max_length=64, verbose_name="queue")),
                ("attempts", models.PositiveIntegerField(default=0, verbose_name="attempts")),
                ("losses", models.PositiveIntegerField(default=0, verbose_name="lost attempts")),
                ("max_losses", models.PositiveIntegerField(default=0, verbose_name="lost attempts that are repeated")),
                ("worker", models.CharField(blank=True, max_length=120, verbose_name="worker")),
                ("lease_expires", models.DateTimeField(blank=True, null=True, verbose_name="lease expires")),
                ("heartbeat", models.DateTimeField(blank=True, null=True, verbose_name="heartbeat")),
                ("sent", models.DateTimeField(blank=True, null=True, verbose_name="sent to the workers again")),
                ("run_after", models.DateTimeField(blank=True, null=True, verbose_name="not before")),
                (
                    "unknown_since",
                    models.DateTimeField(blank=True, null=True, verbose_name="unknown to its workers since"),
                ),
                ("created", models.DateTimeField(default=django.utils.timezone.now, verbose_name="created")),
                ("updated", models.DateTimeField(default=django.utils.timezone.now, verbose_name="updated")),
                ("expires", models.DateTimeField(verbose_name="expires")),
                ("finished", models.DateTimeField(blank=True, null=True, verbose_name="finished")),
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
                "verbose_name": "task",
                "verbose_name_plural": "tasks",
                "default_permissions": ("view", "change", "delete"),
            },
        ),
        migrations.CreateModel(
            name="TaskAttempt",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("number", models.PositiveIntegerField(verbose_name="number")),
                ("worker", models.CharField(max_length=120, verbose_name="worker")),
                ("started", models.DateTimeField(default=django.utils.timezone.now, verbose_name="started")),
                ("ended", models.DateTimeField(blank=True, null=True, verbose_name="ended")),
                (
                    "outcome",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("finished", "finished"),
                            ("suspended", "waits for input"),
                            ("cancelled", "cancelled"),
                            ("stopped", "stopped with its process"),
                            ("lost", "lost with its worker"),
                        ],
                        max_length=16,
                        verbose_name="outcome",
                    ),
                ),
                (
                    "task",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="runs",
                        to="mcp_tasks.task",
                        verbose_name="task",
                    ),
                ),
            ],
            options={
                "verbose_name": "attempt of a task",
                "verbose_name_plural": "attempts of tasks",
                "default_permissions": ("view",),
            },
        ),
        migrations.CreateModel(
            name="TaskInput",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("key", models.CharField(max_length=255, verbose_name="key")),
                ("name", models.CharField(max_length=255, verbose_name="name in the run")),
                ("digest", models.CharField(max_length=64, verbose_name="digest")),
                ("request", models.TextField(verbose_name="request")),
                ("answer", models.TextField(blank=True, verbose_name="answer")),
                ("is_accepted", models.BooleanField(default=False, verbose_name="accepted")),
                ("created", models.DateTimeField(default=django.utils.timezone.now, verbose_name="created")),
                ("asked", models.DateTimeField(blank=True, null=True, verbose_name="asked")),
                ("closed", models.DateTimeField(blank=True, null=True, verbose_name="closed")),
                (
                    "task",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="inputs",
                        to="mcp_tasks.task",
                        verbose_name="task",
                    ),
                ),
            ],
            options={
                "verbose_name": "question of a task",
                "verbose_name_plural": "questions of tasks",
                "default_permissions": ("view",),
            },
        ),
        migrations.CreateModel(
            name="TaskStep",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("key", models.CharField(max_length=255, verbose_name="key")),
                ("value", models.TextField(verbose_name="value")),
                (
                    "task",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="steps",
                        to="mcp_tasks.task",
                        verbose_name="task",
                    ),
                ),
            ],
            options={
                "verbose_name": "step of a task",
                "verbose_name_plural": "steps of tasks",
                "default_permissions": (),
            },
        ),
        migrations.AddIndex(
            model_name="task",
            index=models.Index(fields=["owner_hash", "created"], name="mcp_tasks_owner"),
        ),
        migrations.AddIndex(
            model_name="task",
            index=models.Index(fields=["server", "status"], name="mcp_tasks_server"),
        ),
        migrations.AddIndex(
            model_name="task",
            index=models.Index(fields=["status", "queue", "created"], name="mcp_tasks_waiting"),
        ),
        migrations.AddIndex(
            model_name="task",
            index=models.Index(
                condition=models.Q(("status", "working"), ("worker", "")), fields=["created"], name="mcp_tasks_next"
            ),
        ),
        migrations.AddIndex(
            model_name="task",
            index=models.Index(fields=["expires"], name="mcp_tasks_expires"),
        ),
        migrations.AddConstraint(
            model_name="taskattempt",
            constraint=models.UniqueConstraint(fields=("task", "number"), name="mcp_tasks_attempt_number"),
        ),
        migrations.AddConstraint(
            model_name="taskinput",
            constraint=models.UniqueConstraint(fields=("task", "key"), name="mcp_tasks_input_key"),
        ),
        migrations.AddConstraint(
            model_name="taskstep",
            constraint=models.UniqueConstraint(fields=("task", "key"), name="mcp_tasks_step_key"),
        ),
    ]
