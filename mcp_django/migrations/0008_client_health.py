"""How other servers did lately, as each process found it."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("mcp_django", "0007_client_tokens"),
    ]

    operations = [
        migrations.CreateModel(
            name="ClientHealth",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("process", models.CharField(max_length=100, verbose_name="process")),
                ("alias", models.CharField(max_length=32, verbose_name="alias")),
                ("connections", models.PositiveIntegerField(default=0, verbose_name="connections")),
                ("since", models.DateTimeField(null=True, verbose_name="connected since")),
                ("reached", models.DateTimeField(null=True, verbose_name="last reached")),
                ("calls", models.PositiveBigIntegerField(default=0, verbose_name="calls")),
                ("failures", models.PositiveBigIntegerField(default=0, verbose_name="failures")),
                (
                    "latency",
                    models.FloatField(
                        help_text="Seconds, the latest counting most.", null=True, verbose_name="latency"
                    ),
                ),
                ("protocol_version", models.CharField(blank=True, max_length=32, verbose_name="protocol version")),
                ("server", models.CharField(blank=True, max_length=200, verbose_name="server")),
                ("tools", models.PositiveIntegerField(null=True, verbose_name="tools")),
                ("error", models.CharField(blank=True, max_length=100, verbose_name="last error")),
                ("error_text", models.CharField(blank=True, max_length=300, verbose_name="what it said")),
                ("error_at", models.DateTimeField(null=True, verbose_name="last error at")),
                ("updated", models.DateTimeField(db_index=True, verbose_name="as of")),
            ],
            options={
                "verbose_name": "server in use",
                "verbose_name_plural": "servers in use",
                "default_permissions": ("view", "change"),
                "constraints": [models.UniqueConstraint(fields=("process", "alias"), name="mcp_client_health_once")],
            },
        ),
    ]
