"""The time since which the workers of a task do not know its tool."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("mcp_tasks", "0005_run_after")]

    operations = [
        migrations.AddField(
            model_name="task",
            name="unknown_since",
            field=models.DateTimeField(blank=True, null=True, verbose_name="unknown to its workers since"),
        ),
    ]
