from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="ChainHead",
            fields=[
                ("process", models.CharField(max_length=80, primary_key=True, serialize=False)),
                ("number", models.PositiveBigIntegerField()),
                ("at", models.DateTimeField()),
                ("seal", models.CharField(blank=True, db_default="", default="", editable=False, max_length=64)),
            ],
            options={
                "verbose_name": "end of a chain",
                "verbose_name_plural": "ends of chains",
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="LongCall",
            fields=[
                ("key", models.CharField(max_length=32, primary_key=True, serialize=False)),
                ("process", models.CharField(db_index=True, max_length=80, verbose_name="process")),
                ("started", models.DateTimeField(verbose_name="started")),
                ("server", models.CharField(max_length=64, verbose_name="server")),
                ("method", models.CharField(max_length=64, verbose_name="method")),
                ("name", models.CharField(blank=True, max_length=160, verbose_name="name")),
                ("principal", models.CharField(max_length=255, verbose_name="principal")),
                ("user_key", models.CharField(blank=True, max_length=64, verbose_name="user")),
                ("client", models.CharField(blank=True, max_length=255, verbose_name="client")),
                ("revision", models.CharField(max_length=16, verbose_name="revision")),
                ("waits_for", models.CharField(blank=True, max_length=160, verbose_name="waits for")),
                ("progress", models.FloatField(null=True, verbose_name="progress")),
                ("progress_total", models.FloatField(null=True, verbose_name="total")),
                ("cancelled", models.DateTimeField(null=True, verbose_name="cancelled")),
            ],
            options={
                "verbose_name": "running call",
                "verbose_name_plural": "running calls",
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="ReportedStream",
            fields=[
                ("key", models.CharField(max_length=32, primary_key=True, serialize=False)),
                ("process", models.CharField(db_index=True, max_length=80, verbose_name="process")),
                ("started", models.DateTimeField(verbose_name="started")),
                ("server", models.CharField(max_length=64, verbose_name="server")),
                ("principal", models.CharField(max_length=255, verbose_name="principal")),
                ("user_key", models.CharField(blank=True, max_length=64, verbose_name="user")),
                ("client", models.CharField(blank=True, max_length=255, verbose_name="client")),
                ("revision", models.CharField(max_length=16, verbose_name="revision")),
                ("lists", models.CharField(blank=True, max_length=64, verbose_name="lists")),
                ("resources", models.PositiveIntegerField(verbose_name="resources")),
                ("others", models.PositiveIntegerField(verbose_name="other subjects")),
                ("ended", models.DateTimeField(null=True, verbose_name="ended")),
            ],
            options={
                "verbose_name": "stream without a session",
                "verbose_name_plural": "streams without a session",
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="ServingProcess",
            fields=[
                ("name", models.CharField(max_length=80, primary_key=True, serialize=False, verbose_name="process")),
                ("started", models.DateTimeField(verbose_name="started")),
                ("updated", models.DateTimeField(verbose_name="last report")),
                ("running", models.PositiveIntegerField(verbose_name="running calls")),
                ("busy_threads", models.PositiveIntegerField(verbose_name="busy threads")),
                ("max_threads", models.PositiveIntegerField(verbose_name="maximum threads")),
                ("queued", models.PositiveIntegerField(verbose_name="calls that wait for a thread")),
                ("dropped", models.PositiveBigIntegerField(verbose_name="dropped records")),
                (
                    "streams",
                    models.PositiveIntegerField(db_default=0, default=0, verbose_name="open streams without a session"),
                ),
                (
                    "package_version",
                    models.CharField(
                        blank=True, db_default="", default="", max_length=32, verbose_name="version of mcp-django"
                    ),
                ),
                (
                    "python_version",
                    models.CharField(
                        blank=True, db_default="", default="", max_length=32, verbose_name="version of Python"
                    ),
                ),
                (
                    "django_version",
                    models.CharField(
                        blank=True, db_default="", default="", max_length=32, verbose_name="version of Django"
                    ),
                ),
            ],
            options={
                "verbose_name": "process",
                "verbose_name_plural": "processes",
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="Alert",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("rule", models.CharField(blank=True, max_length=32, verbose_name="rule")),
                ("subject", models.CharField(blank=True, max_length=255, verbose_name="subject")),
                ("is_active", models.BooleanField(default=False, verbose_name="active")),
                ("value", models.FloatField(default=0.0, verbose_name="value")),
                ("limit", models.FloatField(default=0.0, verbose_name="limit")),
                ("total", models.FloatField(default=0.0, editable=False)),
                ("since", models.DateTimeField(blank=True, null=True, verbose_name="since")),
                ("cleared", models.DateTimeField(blank=True, null=True, verbose_name="cleared")),
                ("above_since", models.DateTimeField(blank=True, editable=False, null=True)),
                ("calm_since", models.DateTimeField(blank=True, editable=False, null=True)),
                ("checked", models.DateTimeField(verbose_name="checked")),
                ("muted_until", models.DateTimeField(blank=True, null=True, verbose_name="muted until")),
            ],
            options={
                "verbose_name": "alert",
                "verbose_name_plural": "alerts",
                "permissions": [("mute_alert", "Can mute alerts")],
                "default_permissions": ("view",),
                "constraints": [
                    models.UniqueConstraint(fields=("rule", "subject"), name="mcp_control_room_alert_subject")
                ],
            },
        ),
        migrations.CreateModel(
            name="CallLogEntry",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.DateTimeField(verbose_name="time")),
                ("server", models.CharField(max_length=64, verbose_name="server")),
                ("method", models.CharField(max_length=64, verbose_name="method")),
                ("name", models.CharField(blank=True, max_length=160, verbose_name="name")),
                (
                    "outcome",
                    models.CharField(
                        choices=[
                            ("ok", "ok"),
                            ("tool_error", "tool error"),
                            ("input_required", "input required"),
                            ("error", "protocol error"),
                            ("bug", "bug"),
                            ("timeout", "timeout"),
                            ("cancelled", "cancelled"),
                            ("overloaded", "refused by a limit"),
                        ],
                        max_length=16,
                        verbose_name="outcome",
                    ),
                ),
                ("error_code", models.IntegerField(blank=True, null=True, verbose_name="error code")),
                ("reference", models.CharField(blank=True, max_length=64, verbose_name="reference")),
                ("milliseconds", models.FloatField(verbose_name="milliseconds")),
                ("principal", models.CharField(max_length=255, verbose_name="principal")),
                ("user_key", models.CharField(blank=True, max_length=64, verbose_name="user")),
                (
                    "actor_key",
                    models.CharField(blank=True, db_default="", default="", max_length=64, verbose_name="acting user"),
                ),
                ("client", models.CharField(blank=True, max_length=255, verbose_name="client")),
                ("revision", models.CharField(max_length=16, verbose_name="revision")),
                (
                    "transport",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("http", "HTTP"),
                            ("websocket", "WebSocket"),
                            ("stdio", "standard streams"),
                            ("process", "within the process"),
                        ],
                        db_default="",
                        default="",
                        max_length=16,
                        verbose_name="transport",
                    ),
                ),
                ("session", models.CharField(blank=True, max_length=16, verbose_name="session")),
                ("call_id", models.CharField(blank=True, max_length=160, verbose_name="call id")),
                ("trace_id", models.CharField(blank=True, max_length=32, verbose_name="trace id")),
                (
                    "conversation",
                    models.CharField(blank=True, db_default="", default="", max_length=32, verbose_name="conversation"),
                ),
                ("round", models.PositiveIntegerField(blank=True, null=True, verbose_name="round")),
                (
                    "waited_milliseconds",
                    models.FloatField(blank=True, null=True, verbose_name="waited, in milliseconds"),
                ),
                ("timeline", models.TextField(blank=True, db_default="", default="", editable=False)),
                ("request_bytes", models.PositiveBigIntegerField(blank=True, null=True, verbose_name="bytes received")),
                (
                    "response_bytes",
                    models.PositiveBigIntegerField(blank=True, null=True, verbose_name="bytes of the result"),
                ),
                ("process", models.CharField(max_length=80, verbose_name="process")),
                ("arguments", models.TextField(blank=True, verbose_name="arguments")),
                ("seal", models.CharField(blank=True, default="", editable=False, max_length=400)),
            ],
            options={
                "verbose_name": "call",
                "verbose_name_plural": "calls",
                "permissions": [
                    ("view_call_arguments", "Can view arguments of calls"),
                    ("export_calllogentry", "Can export calls"),
                ],
                "indexes": [
                    models.Index(fields=["at"], name="mcp_control_room_call_at"),
                    models.Index(fields=["name", "at"], name="mcp_control_room_call_name"),
                    models.Index(fields=["user_key", "at"], name="mcp_control_room_call_user"),
                    models.Index(fields=["reference"], name="mcp_control_room_call_ref"),
                    models.Index(fields=["conversation"], name="mcp_control_room_call_round"),
                ],
            },
        ),
        migrations.CreateModel(
            name="CallRollup",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "period",
                    models.IntegerField(
                        choices=[(60, "minute"), (3600, "hour"), (86400, "day")], verbose_name="period"
                    ),
                ),
                ("start", models.DateTimeField(verbose_name="start")),
                ("server", models.CharField(max_length=64, verbose_name="server")),
                ("method", models.CharField(max_length=64, verbose_name="method")),
                ("name", models.CharField(max_length=160, verbose_name="name")),
                (
                    "outcome",
                    models.CharField(
                        choices=[
                            ("ok", "ok"),
                            ("tool_error", "tool error"),
                            ("input_required", "input required"),
                            ("error", "protocol error"),
                            ("bug", "bug"),
                            ("timeout", "timeout"),
                            ("cancelled", "cancelled"),
                            ("overloaded", "refused by a limit"),
                        ],
                        max_length=16,
                        verbose_name="outcome",
                    ),
                ),
                ("process", models.CharField(max_length=80, verbose_name="process")),
                ("count", models.PositiveBigIntegerField(verbose_name="calls")),
                ("milliseconds_sum", models.FloatField(verbose_name="sum of milliseconds")),
                ("milliseconds_max", models.FloatField(verbose_name="longest, in milliseconds")),
                ("histogram", models.BinaryField(verbose_name="histogram")),
            ],
            options={
                "verbose_name": "count of calls",
                "verbose_name_plural": "counts of calls",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("period", "start", "server", "method", "name", "outcome", "process"),
                        name="mcp_control_room_rollup",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="ControlRoom",
            fields=[],
            options={
                "verbose_name": "control room",
                "verbose_name_plural": "control room",
                "permissions": [
                    ("cancel_call", "Can cancel calls"),
                    ("end_stream", "Can end streams without a session"),
                    ("revoke_access", "Can revoke the access of OAuth clients"),
                ],
                "proxy": True,
                "default_permissions": ("view",),
                "indexes": [],
                "constraints": [],
            },
            bases=("mcp_control_room.callrollup",),
        ),
        migrations.CreateModel(
            name="ServerRollup",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("start", models.DateTimeField(verbose_name="start")),
                ("server", models.CharField(max_length=64, verbose_name="server")),
                (
                    "outcome",
                    models.CharField(
                        choices=[
                            ("ok", "ok"),
                            ("tool_error", "tool error"),
                            ("input_required", "input required"),
                            ("error", "protocol error"),
                            ("bug", "bug"),
                            ("timeout", "timeout"),
                            ("cancelled", "cancelled"),
                            ("overloaded", "refused by a limit"),
                        ],
                        max_length=16,
                        verbose_name="outcome",
                    ),
                ),
                ("count", models.PositiveBigIntegerField(verbose_name="calls")),
                ("milliseconds_sum", models.FloatField(verbose_name="sum of milliseconds")),
                ("milliseconds_max", models.FloatField(verbose_name="longest, in milliseconds")),
                ("histogram", models.BinaryField(verbose_name="histogram")),
            ],
            options={
                "verbose_name": "count of calls of a server",
                "verbose_name_plural": "counts of calls of servers",
                "default_permissions": (),
                "constraints": [
                    models.UniqueConstraint(
                        fields=("start", "server", "outcome"), name="mcp_control_room_server_rollup"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="UsageRollup",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("start", models.DateTimeField(verbose_name="start")),
                ("server", models.CharField(max_length=64, verbose_name="server")),
                ("method", models.CharField(max_length=64, verbose_name="method")),
                ("name", models.CharField(max_length=160, verbose_name="name")),
                ("principal", models.CharField(max_length=255, verbose_name="principal")),
                ("user_key", models.CharField(blank=True, max_length=64, verbose_name="user")),
                ("client", models.CharField(blank=True, max_length=255, verbose_name="client")),
                ("process", models.CharField(max_length=80, verbose_name="process")),
                ("count", models.PositiveBigIntegerField(verbose_name="calls")),
                ("failed", models.PositiveBigIntegerField(verbose_name="failed calls")),
                ("milliseconds_sum", models.FloatField(verbose_name="sum of milliseconds")),
            ],
            options={
                "verbose_name": "usage by a caller",
                "verbose_name_plural": "usage by callers",
                "indexes": [models.Index(fields=["user_key", "start"], name="mcp_control_room_usage_user")],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("start", "server", "method", "name", "principal", "process"),
                        name="mcp_control_room_usage",
                    )
                ],
            },
        ),
    ]
