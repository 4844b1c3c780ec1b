"""Single users in scope grants."""

from django.db import migrations, models

import mcp_django.models.rules


class Migration(migrations.Migration):
    dependencies = [
        ("mcp_django", "0009_plain_texts"),
    ]

    operations = [
        migrations.AddField(
            model_name="scopegrant",
            name="users",
            field=models.JSONField(
                blank=True,
                default=list,
                help_text="These users may hold it, too. Without groups, only they may.",
                validators=[mcp_django.models.rules.check_names],
                verbose_name="users",
            ),
        ),
    ]
