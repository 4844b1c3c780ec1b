"""The time of the last repeated delivery of a waiting task."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("mcp_tasks", "0003_next")]

    operations = [
        migrations.AddField(
            model_name="task",
            name="sent",
            field=models.DateTimeField(blank=True, null=True, verbose_name="sent to the workers again"),
        ),
    ]
