"""Policies of tools, and who may hold which scope."""

import django.core.validators
from django.db import migrations, models

import mcp_django.models.rules
import mcp_django.models.token


class Migration(migrations.Migration):
    dependencies = [
        ("mcp_django", "0004_stored"),
    ]

    operations = [
        migrations.CreateModel(
            name="ScopeGrant",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "note",
                    models.CharField(
                        blank=True,
                        help_text="Why, for those who find it later. Clients never see it.",
                        max_length=200,
                        verbose_name="note",
                    ),
                ),
                ("updated", models.DateTimeField(auto_now=True, verbose_name="changed")),
                (
                    "scope",
                    models.CharField(
                        help_text="One of the scopes that MCP[“SCOPES”] declares.",
                        max_length=128,
                        unique=True,
                        validators=[mcp_django.models.rules.check_scope],
                        verbose_name="scope",
                    ),
                ),
                (
                    "groups",
                    models.JSONField(
                        blank=True,
                        default=list,
                        help_text="Only users in one of these groups may hold it, superusers too. None: users of all groups. A group that is renamed has to be chosen again.",
                        validators=[mcp_django.models.rules.check_names],
                        verbose_name="groups",
                    ),
                ),
                (
                    "clients",
                    models.JSONField(
                        blank=True,
                        default=list,
                        help_text="Only clients with these identifiers may hold it, one on each line; * stands for anything. None: all.",
                        validators=[mcp_django.models.rules.check_names],
                        verbose_name="clients",
                    ),
                ),
                (
                    "tokens",
                    models.BooleanField(
                        default=True,
                        help_text="May personal access tokens hold it?",
                        verbose_name="personal access tokens",
                    ),
                ),
            ],
            options={
                "verbose_name": "scope grant",
                "verbose_name_plural": "scope grants",
                "ordering": ["scope"],
            },
        ),
        migrations.CreateModel(
            name="ToolPolicy",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "note",
                    models.CharField(
                        blank=True,
                        help_text="Why, for those who find it later. Clients never see it.",
                        max_length=200,
                        verbose_name="note",
                    ),
                ),
                ("updated", models.DateTimeField(auto_now=True, verbose_name="changed")),
                (
                    "server",
                    models.CharField(
                        blank=True,
                        default="",
                        help_text="The alias of the only server it is for.",
                        max_length=64,
                        verbose_name="server",
                    ),
                ),
                (
                    "tool",
                    models.CharField(
                        help_text="A tool's name, or a pattern: * stands for any letters, ? for one. Every policy that fits a tool holds.",
                        max_length=128,
                        validators=[
                            django.core.validators.RegexValidator(
                                "\\A[A-Za-z0-9_.*?\\-]{1,128}\\Z",
                                "A tool's name has letters without accents, digits, or one of _ - . — with * for any of these, ? for one.",
                            )
                        ],
                        verbose_name="tool",
                    ),
                ),
                (
                    "disabled",
                    models.BooleanField(
                        default=False,
                        help_text="The tool is not there: for nobody, not even for superusers.",
                        verbose_name="disabled",
                    ),
                ),
                (
                    "scopes",
                    models.JSONField(
                        blank=True,
                        default=list,
                        help_text="What has to be delegated to the caller's client besides what the tool takes by itself.",
                        validators=[mcp_django.models.token.check_scopes],
                        verbose_name="scopes",
                    ),
                ),
                (
                    "groups",
                    models.JSONField(
                        blank=True,
                        default=list,
                        help_text="The caller has to be in one of these groups, superusers too. For others the tool does not exist. A group that is renamed has to be chosen again.",
                        validators=[mcp_django.models.rules.check_names],
                        verbose_name="groups",
                    ),
                ),
                (
                    "rate",
                    models.CharField(
                        blank=True,
                        help_text="How often each caller may use each of the tools, such as “10/m”. The lowest rate that is said holds.",
                        max_length=32,
                        validators=[mcp_django.models.rules.check_rate],
                        verbose_name="rate",
                    ),
                ),
            ],
            options={
                "verbose_name": "tool policy",
                "verbose_name_plural": "tool policies",
                "ordering": ["tool", "server"],
                "constraints": [models.UniqueConstraint(fields=("tool", "server"), name="mcp_one_policy_for_a_tool")],
            },
        ),
    ]
