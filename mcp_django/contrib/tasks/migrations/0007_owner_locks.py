"""The rows that processes lock before they count the tasks of an owner, which keep the limit of an owner exact."""

import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("mcp_tasks", "0006_unknown_since")]

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
    ]
