"""The table of session counts, which keeps the limit of a server exact."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("mcp_django", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="SessionCount",
            fields=[
                ("server", models.CharField(max_length=64, primary_key=True, serialize=False, verbose_name="server")),
                ("at_most", models.PositiveIntegerField(verbose_name="sessions at most")),
            ],
            options={
                "verbose_name": "session count",
                "verbose_name_plural": "session counts",
                "default_permissions": (),
            },
        ),
    ]
