"""Page of access: who may do what."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("mcp_django", "0011_service_accounts"),
    ]

    operations = [
        migrations.CreateModel(
            name="Access",
            fields=[],
            options={
                "verbose_name": "Who may do what",
                "verbose_name_plural": "Who may do what",
                "proxy": True,
                "default_permissions": ("view",),
                "indexes": [],
                "constraints": [],
            },
            bases=("mcp_django.toolpolicy",),
        ),
    ]
