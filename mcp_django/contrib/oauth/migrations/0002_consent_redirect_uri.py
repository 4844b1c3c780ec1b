"""Redirect URIs of consents. Existing consents have none, so their users are asked again; their tokens stay valid."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("mcp_oauth", "0001_initial")]

    operations = [
        migrations.AddField(
            model_name="consent",
            name="redirect_uri",
            field=models.CharField(
                blank=True, default="", editable=False, max_length=1024, verbose_name="redirect URI"
            ),
        ),
        migrations.AddField(
            model_name="consent",
            name="redirect_digest",
            field=models.CharField(blank=True, default="", editable=False, max_length=64),
        ),
        migrations.RemoveConstraint(model_name="consent", name="mcp_oauth_consent_unique"),
        migrations.AddConstraint(
            model_name="consent",
            constraint=models.UniqueConstraint(
                fields=("user", "application", "resource", "redirect_digest"), name="mcp_oauth_consent_unique"
            ),
        ),
    ]
