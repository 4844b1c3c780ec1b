"""Permissions of the playground. No table changes."""

import django.contrib.admin.models
from django.db import migrations


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("admin", "0003_logentry_add_action_flag_choices"),
    ]

    operations = [
        migrations.CreateModel(
            name="Playground",
            fields=[],
            options={
                "verbose_name": "playground",
                "verbose_name_plural": "playground",
                "permissions": [
                    ("use_playground", "Can use the playground"),
                    ("use_playground_as", "Can use the playground as other users"),
                ],
                "proxy": True,
                "default_permissions": (),
                "indexes": [],
                "constraints": [],
            },
            bases=("admin.logentry",),
            managers=[
                ("objects", django.contrib.admin.models.LogEntryManager()),
            ],
        ),
    ]
