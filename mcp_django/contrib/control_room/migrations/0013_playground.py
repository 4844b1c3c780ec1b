"""The playground has moved to an app of its own. No table changes."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("mcp_control_room", "0012_access"),
    ]

    operations = [
        migrations.DeleteModel(
            name="Playground",
        ),
    ]
