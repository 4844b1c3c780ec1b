"""The time before which a returned task is not claimed."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("mcp_tasks", "0004_sent")]

    operations = [
        migrations.AddField(
            model_name="task",
            name="run_after",
            field=models.DateTimeField(blank=True, null=True, verbose_name="not before"),
        ),
    ]
