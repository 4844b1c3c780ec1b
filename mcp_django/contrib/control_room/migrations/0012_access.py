"""The permission of the page of access has moved to `mcp_django`."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("mcp_control_room", "0011_chain_marks"),
    ]

    operations = [
        migrations.AlterModelOptions(
            name="controlroom",
            options={
                "default_permissions": ("view",),
                "permissions": [
                    ("cancel_call", "Can cancel calls"),
                    ("end_stream", "Can end streams without a session"),
                    ("revoke_access", "Can revoke the access of OAuth clients"),
                ],
                "verbose_name": "control room",
                "verbose_name_plural": "control room",
            },
        ),
    ]
