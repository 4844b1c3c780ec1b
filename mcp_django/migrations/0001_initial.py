"""The tables of sessions and personal access tokens."""

import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="PersonalAccessToken",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "name",
                    models.CharField(
                        help_text="What it is for, such as “CI of the shop”.", max_length=100, verbose_name="name"
                    ),
                ),
                ("prefix", models.CharField(editable=False, max_length=16, verbose_name="token")),
                ("token_hash", models.CharField(editable=False, max_length=64, unique=True, verbose_name="hash")),
                ("scopes", models.JSONField(blank=True, default=list, verbose_name="scopes")),
                ("audience", models.CharField(blank=True, default="", max_length=64, verbose_name="server")),
                (
                    "created",
                    models.DateTimeField(default=django.utils.timezone.now, editable=False, verbose_name="created"),
                ),
                ("expires_at", models.DateTimeField(blank=True, null=True, verbose_name="expires")),
                ("last_used_at", models.DateTimeField(blank=True, editable=False, null=True, verbose_name="last used")),
                ("revoked_at", models.DateTimeField(blank=True, editable=False, null=True, verbose_name="revoked")),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="user",
                    ),
                ),
            ],
            options={
                "verbose_name": "personal access token",
                "verbose_name_plural": "personal access tokens",
                "ordering": ["-created", "-pk"],
            },
        ),
        migrations.CreateModel(
            name="Session",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("key_hash", models.CharField(editable=False, max_length=64, unique=True, verbose_name="key hash")),
                ("key_prefix", models.CharField(editable=False, max_length=8, verbose_name="key")),
                ("server", models.CharField(max_length=64, verbose_name="server")),
                ("revision", models.CharField(max_length=16, verbose_name="revision")),
                ("client_info", models.JSONField(blank=True, default=dict, verbose_name="client")),
                ("client_capabilities", models.JSONField(blank=True, default=dict, verbose_name="client capabilities")),
                ("log_level", models.CharField(blank=True, default="", max_length=16, verbose_name="log level")),
                ("initialized", models.BooleanField(default=False, verbose_name="initialized")),
                ("owner", models.CharField(max_length=255, verbose_name="owner")),
                ("slot", models.PositiveSmallIntegerField(blank=True, null=True, verbose_name="slot")),
                ("next_seq", models.PositiveBigIntegerField(default=0, verbose_name="next sequence number")),
                ("created", models.DateTimeField(default=django.utils.timezone.now, verbose_name="created")),
                (
                    "last_seen",
                    models.DateTimeField(db_index=True, default=django.utils.timezone.now, verbose_name="last seen"),
                ),
                ("expires", models.DateTimeField(verbose_name="expires")),
                ("terminated_at", models.DateTimeField(blank=True, db_index=True, null=True, verbose_name="ended")),
                ("end_reason", models.CharField(blank=True, default="", max_length=32, verbose_name="reason")),
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
                "verbose_name": "session",
                "verbose_name_plural": "sessions",
                "ordering": ["-created", "-pk"],
                "indexes": [
                    models.Index(
                        condition=models.Q(("terminated_at", None)),
                        fields=["server", "last_seen"],
                        name="mcp_session_live",
                    )
                ],
                "constraints": [models.UniqueConstraint(fields=("owner", "slot"), name="mcp_session_owner_slot")],
            },
        ),
    ]
