"""An index of the waiting tasks alone, for the claims of workers."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("mcp_tasks", "0002_workers")]

    operations = [
        migrations.AddIndex(
            model_name="task",
            index=models.Index(
                condition=models.Q(("status", "working"), ("worker", "")), fields=["created"], name="mcp_tasks_next"
            ),
        ),
    ]
