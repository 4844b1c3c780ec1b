import uuid

import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

from mcp_django.conf.project import oauth_model_name


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("oauth2_provider", "0022_refreshtoken_token_family_index"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
        migrations.swappable_dependency(oauth_model_name("Application")),
        migrations.swappable_dependency(oauth_model_name("RefreshToken")),
    ]

    operations = [
        migrations.CreateModel(
            name="TokenFamily",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, primary_key=True, serialize=False, verbose_name="family")),
                ("created", models.DateTimeField(default=django.utils.timezone.now, verbose_name="created")),
                (
                    "rotated",
                    models.DateTimeField(db_index=True, default=django.utils.timezone.now, verbose_name="last rotated"),
                ),
                ("revoked", models.DateTimeField(null=True, verbose_name="revoked")),
                (
                    "application",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to=oauth_model_name("Application"),
                        verbose_name="client",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="user",
                    ),
                ),
            ],
            options={
                "verbose_name": "token family",
                "verbose_name_plural": "token families",
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="UsedCode",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("code_hash", models.CharField(max_length=64, unique=True, verbose_name="hash")),
                ("family", models.UUIDField(null=True, verbose_name="token family")),
                (
                    "access_token_hash",
                    models.CharField(blank=True, default="", max_length=64, verbose_name="hash of the access token"),
                ),
                ("used", models.DateTimeField(default=django.utils.timezone.now, verbose_name="used")),
                ("expires", models.DateTimeField(db_index=True, verbose_name="expires")),
                (
                    "application",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to=oauth_model_name("Application"),
                        verbose_name="client",
                    ),
                ),
            ],
            options={
                "verbose_name": "used code",
                "verbose_name_plural": "used codes",
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="ClientProfile",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "source",
                    models.CharField(
                        choices=[
                            ("manual", "created by an operator"),
                            ("registered", "registered itself"),
                            ("document", "described by its document"),
                        ],
                        default="manual",
                        max_length=16,
                        verbose_name="source",
                    ),
                ),
                (
                    "document_url",
                    models.TextField(
                        blank=True,
                        default="",
                        verbose_name="document",
                    ),
                ),
                (
                    "document_hash",
                    models.CharField(
                        blank=True, default="", editable=False, max_length=64, verbose_name="hash of the document"
                    ),
                ),
                (
                    "document_fetched",
                    models.DateTimeField(blank=True, editable=False, null=True, verbose_name="document fetched"),
                ),
                (
                    "application_type",
                    models.CharField(
                        blank=True,
                        choices=[("", "unspecified"), ("web", "web"), ("native", "native")],
                        default="",
                        max_length=16,
                        verbose_name="type",
                    ),
                ),
                ("client_uri", models.TextField(blank=True, default="", verbose_name="home page")),
                ("policy_uri", models.TextField(blank=True, default="", verbose_name="privacy policy")),
                ("tos_uri", models.TextField(blank=True, default="", verbose_name="terms of service")),
                ("logo_uri", models.TextField(blank=True, default="", verbose_name="logo")),
                ("requested_grants", models.JSONField(blank=True, default=list, verbose_name="requested grants")),
                (
                    "approved",
                    models.BooleanField(
                        default=False,
                        verbose_name="approved",
                    ),
                ),
                (
                    "blocked",
                    models.BooleanField(
                        default=False,
                        verbose_name="blocked",
                    ),
                ),
                (
                    "trusted",
                    models.BooleanField(
                        default=False,
                        verbose_name="trusted",
                    ),
                ),
                (
                    "allowed_scopes",
                    models.JSONField(
                        blank=True,
                        null=True,
                        verbose_name="allowed scopes",
                    ),
                ),
                (
                    "allowed_resources",
                    models.JSONField(
                        blank=True,
                        null=True,
                        verbose_name="allowed servers",
                    ),
                ),
                (
                    "created_ip",
                    models.GenericIPAddressField(blank=True, editable=False, null=True, verbose_name="registered from"),
                ),
                (
                    "created",
                    models.DateTimeField(default=django.utils.timezone.now, editable=False, verbose_name="created"),
                ),
                ("last_used", models.DateTimeField(blank=True, editable=False, null=True, verbose_name="last used")),
                (
                    "application",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="mcp_profile",
                        to=oauth_model_name("Application"),
                        verbose_name="application",
                    ),
                ),
                (
                    "service_user",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="service user",
                    ),
                ),
            ],
            options={
                "verbose_name": "client profile",
                "verbose_name_plural": "client profiles",
                "ordering": ["-created", "-pk"],
                "indexes": [models.Index(fields=["source", "approved", "created"], name="mcp_oauth_profile_source")],
            },
        ),
        migrations.CreateModel(
            name="Consent",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("resource", models.CharField(max_length=500, verbose_name="server")),
                ("scopes", models.JSONField(blank=True, default=list, verbose_name="scopes")),
                (
                    "redirects_hash",
                    models.CharField(editable=False, max_length=64, verbose_name="hash of the redirect URIs"),
                ),
                (
                    "redirect_uri",
                    models.CharField(
                        blank=True, default="", editable=False, max_length=1024, verbose_name="redirect URI"
                    ),
                ),
                ("redirect_digest", models.CharField(blank=True, default="", editable=False, max_length=64)),
                ("granted", models.DateTimeField(default=django.utils.timezone.now, verbose_name="granted")),
                (
                    "expires",
                    models.DateTimeField(
                        blank=True,
                        null=True,
                        verbose_name="expires",
                    ),
                ),
                ("revoked", models.DateTimeField(blank=True, null=True, verbose_name="revoked")),
                (
                    "application",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to=oauth_model_name("Application"),
                        verbose_name="client",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="user",
                    ),
                ),
            ],
            options={
                "verbose_name": "consent",
                "verbose_name_plural": "consents",
                "ordering": ["-granted", "-pk"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("user", "application", "resource", "redirect_digest"), name="mcp_oauth_consent_unique"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Rotation",
            fields=[
                (
                    "refresh_token",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="+",
                        serialize=False,
                        to=oauth_model_name("RefreshToken"),
                    ),
                ),
                ("generation", models.PositiveIntegerField(default=0, verbose_name="generation")),
                ("superseded", models.DateTimeField(null=True, verbose_name="superseded")),
                ("siblings", models.PositiveSmallIntegerField(default=0, verbose_name="siblings of its successor")),
                (
                    "family",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="mcp_oauth.tokenfamily",
                        verbose_name="family",
                    ),
                ),
            ],
            options={
                "verbose_name": "rotation",
                "verbose_name_plural": "rotations",
                "default_permissions": (),
                "indexes": [models.Index(fields=["family", "generation"], name="mcp_oauth_rotation_family")],
            },
        ),
    ]
