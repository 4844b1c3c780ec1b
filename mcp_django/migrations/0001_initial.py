import django.core.validators
import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

import mcp_django.models.rules
import mcp_django.models.stored.base
import mcp_django.models.stored.resource
import mcp_django.models.token


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="EventSequence",
            fields=[
                ("id", models.PositiveSmallIntegerField(default=1, primary_key=True, serialize=False)),
                ("last", models.PositiveBigIntegerField(default=0, verbose_name="latest number")),
            ],
            options={
                "verbose_name": "event sequence",
                "verbose_name_plural": "event sequences",
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="OnceResult",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("key_hash", models.CharField(editable=False, max_length=64, unique=True, verbose_name="key hash")),
                ("owner", models.CharField(max_length=255, verbose_name="owner")),
                ("claimed_at", models.DateTimeField(default=django.utils.timezone.now, verbose_name="claimed")),
                ("done_at", models.DateTimeField(blank=True, null=True, verbose_name="done")),
                ("result", models.JSONField(blank=True, null=True, verbose_name="result")),
                ("expires", models.DateTimeField(db_index=True, verbose_name="expires")),
            ],
            options={
                "verbose_name": "result of once()",
                "verbose_name_plural": "results of once()",
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="ScopeGrant",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "note",
                    models.CharField(
                        blank=True,
                        max_length=200,
                        verbose_name="note",
                    ),
                ),
                ("updated", models.DateTimeField(auto_now=True, verbose_name="changed")),
                (
                    "scope",
                    models.CharField(
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
                        validators=[mcp_django.models.rules.check_names],
                        verbose_name="groups",
                    ),
                ),
                (
                    "users",
                    models.JSONField(
                        blank=True,
                        default=list,
                        validators=[mcp_django.models.rules.check_names],
                        verbose_name="users",
                    ),
                ),
                (
                    "clients",
                    models.JSONField(
                        blank=True,
                        default=list,
                        validators=[mcp_django.models.rules.check_names],
                        verbose_name="clients",
                    ),
                ),
                (
                    "tokens",
                    models.BooleanField(
                        default=True,
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
            name="SessionCount",
            fields=[
                ("server", models.CharField(max_length=64, primary_key=True, serialize=False, verbose_name="server")),
                ("at_most", models.PositiveIntegerField(verbose_name="maximum sessions")),
            ],
            options={
                "verbose_name": "session count",
                "verbose_name_plural": "session counts",
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="SpentState",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("digest", models.CharField(editable=False, max_length=64, unique=True, verbose_name="digest")),
                ("expires", models.DateTimeField(db_index=True, verbose_name="expires")),
            ],
            options={
                "verbose_name": "used state",
                "verbose_name_plural": "used states",
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="StoredState",
            fields=[
                ("id", models.PositiveSmallIntegerField(primary_key=True, serialize=False)),
                ("token", models.CharField(default="", max_length=32, verbose_name="mark")),
            ],
            options={
                "verbose_name": "cache version",
                "verbose_name_plural": "cache versions",
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="ClientFlow",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("state_hash", models.CharField(editable=False, max_length=64, unique=True, verbose_name="state")),
                ("alias", models.CharField(max_length=64, verbose_name="server")),
                ("browser_hash", models.CharField(editable=False, max_length=64, verbose_name="browser")),
                ("sealed", models.TextField(editable=False, verbose_name="sealed request")),
                ("expires_at", models.DateTimeField(db_index=True, verbose_name="expires")),
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
                "verbose_name": "authorization in progress",
                "verbose_name_plural": "authorizations in progress",
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="ClientHealth",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("process", models.CharField(max_length=100, verbose_name="process")),
                ("alias", models.CharField(max_length=32, verbose_name="alias")),
                ("connections", models.PositiveIntegerField(default=0, verbose_name="connections")),
                ("since", models.DateTimeField(null=True, verbose_name="connected since")),
                ("reached", models.DateTimeField(null=True, verbose_name="last reached")),
                ("calls", models.PositiveBigIntegerField(default=0, verbose_name="calls")),
                ("failures", models.PositiveBigIntegerField(default=0, verbose_name="failures")),
                (
                    "latency",
                    models.FloatField(null=True, verbose_name="latency"),
                ),
                ("protocol_version", models.CharField(blank=True, max_length=32, verbose_name="protocol version")),
                ("server", models.CharField(blank=True, max_length=200, verbose_name="server")),
                ("tools", models.PositiveIntegerField(null=True, verbose_name="tools")),
                ("error", models.CharField(blank=True, max_length=100, verbose_name="last error")),
                ("error_text", models.CharField(blank=True, max_length=300, verbose_name="error message")),
                ("error_at", models.DateTimeField(null=True, verbose_name="last error at")),
                ("updated", models.DateTimeField(db_index=True, verbose_name="as of")),
            ],
            options={
                "verbose_name": "remote server",
                "verbose_name_plural": "remote servers",
                "default_permissions": ("view", "change"),
                "constraints": [models.UniqueConstraint(fields=("process", "alias"), name="mcp_client_health_once")],
            },
        ),
        migrations.CreateModel(
            name="PersonalAccessToken",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "name",
                    models.CharField(max_length=100, verbose_name="name"),
                ),
                ("prefix", models.CharField(editable=False, max_length=16, verbose_name="token")),
                ("token_hash", models.CharField(editable=False, max_length=64, unique=True, verbose_name="hash")),
                ("scopes", models.JSONField(blank=True, default=list, verbose_name="scopes")),
                ("audience", models.CharField(blank=True, default="", max_length=64, verbose_name="server")),
                (
                    "created",
                    models.DateTimeField(default=django.utils.timezone.now, editable=False, verbose_name="created"),
                ),
                ("expires_at", models.DateTimeField(blank=True, null=True, verbose_name="expires")),
                ("last_used_at", models.DateTimeField(blank=True, editable=False, null=True, verbose_name="last used")),
                ("revoked_at", models.DateTimeField(blank=True, editable=False, null=True, verbose_name="revoked")),
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
                "verbose_name": "personal access token",
                "verbose_name_plural": "personal access tokens",
                "ordering": ["-created", "-pk"],
            },
        ),
        migrations.CreateModel(
            name="ServiceAccount",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "description",
                    models.CharField(
                        blank=True,
                        max_length=500,
                        verbose_name="description",
                    ),
                ),
                (
                    "created",
                    models.DateTimeField(default=django.utils.timezone.now, editable=False, verbose_name="created"),
                ),
                (
                    "owner",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="owner",
                    ),
                ),
                (
                    "user",
                    models.OneToOneField(
                        editable=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="user",
                    ),
                ),
            ],
            options={
                "verbose_name": "service account",
                "verbose_name_plural": "service accounts",
                "ordering": ["-created", "-pk"],
            },
        ),
        migrations.CreateModel(
            name="Session",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("key_hash", models.CharField(editable=False, max_length=64, unique=True, verbose_name="key hash")),
                ("key_prefix", models.CharField(editable=False, max_length=8, verbose_name="key")),
                ("server", models.CharField(max_length=64, verbose_name="server")),
                ("revision", models.CharField(max_length=16, verbose_name="revision")),
                ("client_info", models.JSONField(blank=True, default=dict, verbose_name="client")),
                ("client_capabilities", models.JSONField(blank=True, default=dict, verbose_name="client capabilities")),
                ("lists", models.JSONField(blank=True, default=dict, editable=False, verbose_name="lists")),
                ("log_level", models.CharField(blank=True, default="", max_length=16, verbose_name="log level")),
                ("initialized", models.BooleanField(default=False, verbose_name="initialized")),
                ("owner", models.CharField(max_length=255, verbose_name="owner")),
                ("slot", models.PositiveSmallIntegerField(blank=True, null=True, verbose_name="slot")),
                ("created", models.DateTimeField(default=django.utils.timezone.now, verbose_name="created")),
                (
                    "last_seen",
                    models.DateTimeField(db_index=True, default=django.utils.timezone.now, verbose_name="last seen"),
                ),
                ("expires", models.DateTimeField(verbose_name="expires")),
                ("terminated_at", models.DateTimeField(blank=True, db_index=True, null=True, verbose_name="ended")),
                ("end_reason", models.CharField(blank=True, default="", max_length=32, verbose_name="reason")),
                (
                    "user",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="user",
                    ),
                ),
            ],
            options={
                "verbose_name": "session",
                "verbose_name_plural": "sessions",
                "ordering": ["-created", "-pk"],
            },
        ),
        migrations.CreateModel(
            name="ResourceSubscription",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("uri", models.TextField(verbose_name="URI")),
                ("uri_hash", models.CharField(editable=False, max_length=64, verbose_name="hash of the URI")),
                ("since", models.PositiveBigIntegerField(default=0, verbose_name="from event")),
                (
                    "session",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="subscriptions",
                        to="mcp_django.session",
                        verbose_name="session",
                    ),
                ),
            ],
            options={
                "verbose_name": "resource subscription",
                "verbose_name_plural": "resource subscriptions",
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="StoredPrompt",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "server",
                    models.CharField(
                        blank=True,
                        default="",
                        max_length=64,
                        verbose_name="server",
                    ),
                ),
                (
                    "title",
                    models.CharField(blank=True, max_length=200, verbose_name="title"),
                ),
                (
                    "description",
                    models.TextField(
                        blank=True,
                        validators=[django.core.validators.MaxLengthValidator(10000)],
                        verbose_name="description",
                    ),
                ),
                (
                    "enabled",
                    models.BooleanField(default=True, verbose_name="enabled"),
                ),
                (
                    "permission",
                    models.CharField(
                        blank=True,
                        max_length=255,
                        validators=[
                            django.core.validators.RegexValidator(
                                "\\A[A-Za-z0-9_-]+\\.[A-Za-z0-9_-]+(?: [A-Za-z0-9_-]+\\.[A-Za-z0-9_-]+)*\\Z",
                                "Write permissions like “app.codename”, with a space between two.",
                            )
                        ],
                        verbose_name="permission",
                    ),
                ),
                (
                    "scopes",
                    models.JSONField(
                        blank=True,
                        default=list,
                        validators=[mcp_django.models.token.check_scopes],
                        verbose_name="scopes",
                    ),
                ),
                (
                    "tags",
                    models.JSONField(
                        blank=True,
                        default=list,
                        validators=[mcp_django.models.stored.base.check_tags],
                        verbose_name="tags",
                    ),
                ),
                ("created", models.DateTimeField(auto_now_add=True, verbose_name="created")),
                ("updated", models.DateTimeField(auto_now=True, verbose_name="changed")),
                (
                    "name",
                    models.CharField(
                        max_length=64,
                        validators=[
                            django.core.validators.RegexValidator(
                                "\\A(?:[A-Za-z0-9_.\\-]{1,64})\\Z",
                                "A name has 1 to 64 letters without accents, digits, or one of _ - .",
                            )
                        ],
                        verbose_name="name",
                    ),
                ),
            ],
            options={
                "verbose_name": "prompt",
                "verbose_name_plural": "prompts",
                "ordering": ["name", "server"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("server", "name"),
                        name="mcp_stored_prompt_name",
                        violation_error_message="This server already has a prompt with this name.",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="StoredMessage",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "position",
                    models.PositiveSmallIntegerField(default=0, verbose_name="position"),
                ),
                (
                    "role",
                    models.CharField(
                        choices=[("user", "user"), ("assistant", "assistant")],
                        default="user",
                        max_length=16,
                        verbose_name="role",
                    ),
                ),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("text", "text"),
                            ("link", "link to a resource"),
                            ("resource", "a resource's content"),
                        ],
                        default="text",
                        max_length=16,
                        verbose_name="kind",
                    ),
                ),
                (
                    "text",
                    models.TextField(
                        blank=True,
                        validators=[django.core.validators.MaxLengthValidator(100000)],
                        verbose_name="text",
                    ),
                ),
                (
                    "uri",
                    models.CharField(
                        blank=True,
                        max_length=500,
                        verbose_name="URI",
                    ),
                ),
                (
                    "prompt",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="messages",
                        to="mcp_django.storedprompt",
                    ),
                ),
            ],
            options={
                "verbose_name": "message",
                "verbose_name_plural": "messages",
                "ordering": ["position", "pk"],
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="StoredArgument",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "position",
                    models.PositiveSmallIntegerField(default=0, verbose_name="position"),
                ),
                (
                    "name",
                    models.CharField(
                        max_length=64,
                        validators=[
                            django.core.validators.RegexValidator(
                                "\\A(?:[A-Za-z_][A-Za-z0-9_]{0,63})\\Z",
                                "An argument's name has letters without accents, digits and _, and does not begin with a digit.",
                            )
                        ],
                        verbose_name="name",
                    ),
                ),
                ("title", models.CharField(blank=True, max_length=200, verbose_name="title")),
                (
                    "description",
                    models.TextField(
                        blank=True,
                        validators=[django.core.validators.MaxLengthValidator(10000)],
                        verbose_name="description",
                    ),
                ),
                ("required", models.BooleanField(default=True, verbose_name="required")),
                (
                    "default",
                    models.TextField(
                        blank=True,
                        validators=[django.core.validators.MaxLengthValidator(100000)],
                        verbose_name="default",
                    ),
                ),
                (
                    "choices",
                    models.JSONField(
                        blank=True,
                        default=list,
                        verbose_name="choices",
                    ),
                ),
                (
                    "prompt",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="arguments",
                        to="mcp_django.storedprompt",
                    ),
                ),
            ],
            options={
                "verbose_name": "argument",
                "verbose_name_plural": "arguments",
                "ordering": ["position", "pk"],
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="StoredPromptVersion",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("number", models.PositiveIntegerField(verbose_name="version")),
                ("created", models.DateTimeField(auto_now_add=True, verbose_name="saved")),
                ("username", models.CharField(blank=True, max_length=150, verbose_name="username")),
                ("note", models.CharField(blank=True, max_length=200, verbose_name="note")),
                ("changes", models.JSONField(default=list, verbose_name="changes")),
                ("data", models.JSONField(verbose_name="content")),
                (
                    "stored",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="versions",
                        to="mcp_django.storedprompt",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="by",
                    ),
                ),
            ],
            options={
                "verbose_name": "version of a prompt",
                "verbose_name_plural": "versions of prompts",
                "ordering": ["-number"],
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="StoredResource",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "server",
                    models.CharField(
                        blank=True,
                        default="",
                        max_length=64,
                        verbose_name="server",
                    ),
                ),
                (
                    "title",
                    models.CharField(blank=True, max_length=200, verbose_name="title"),
                ),
                (
                    "description",
                    models.TextField(
                        blank=True,
                        validators=[django.core.validators.MaxLengthValidator(10000)],
                        verbose_name="description",
                    ),
                ),
                (
                    "enabled",
                    models.BooleanField(default=True, verbose_name="enabled"),
                ),
                (
                    "permission",
                    models.CharField(
                        blank=True,
                        max_length=255,
                        validators=[
                            django.core.validators.RegexValidator(
                                "\\A[A-Za-z0-9_-]+\\.[A-Za-z0-9_-]+(?: [A-Za-z0-9_-]+\\.[A-Za-z0-9_-]+)*\\Z",
                                "Write permissions like “app.codename”, with a space between two.",
                            )
                        ],
                        verbose_name="permission",
                    ),
                ),
                (
                    "scopes",
                    models.JSONField(
                        blank=True,
                        default=list,
                        validators=[mcp_django.models.token.check_scopes],
                        verbose_name="scopes",
                    ),
                ),
                (
                    "tags",
                    models.JSONField(
                        blank=True,
                        default=list,
                        validators=[mcp_django.models.stored.base.check_tags],
                        verbose_name="tags",
                    ),
                ),
                ("created", models.DateTimeField(auto_now_add=True, verbose_name="created")),
                ("updated", models.DateTimeField(auto_now=True, verbose_name="changed")),
                (
                    "uri",
                    models.CharField(
                        max_length=500,
                        validators=[mcp_django.models.stored.resource.check_uri],
                        verbose_name="URI",
                    ),
                ),
                ("name", models.CharField(max_length=200, verbose_name="name")),
                (
                    "mime_type",
                    models.CharField(
                        blank=True,
                        max_length=150,
                        validators=[
                            django.core.validators.RegexValidator(
                                "\\A[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+(?:; ?[A-Za-z0-9_-]+=[A-Za-z0-9_.+-]+)*\\Z",
                                "A MIME type looks like “text/markdown”.",
                            )
                        ],
                        verbose_name="MIME type",
                    ),
                ),
                (
                    "audience",
                    models.CharField(
                        blank=True,
                        choices=[("user", "people"), ("assistant", "models"), ("user assistant", "people and models")],
                        max_length=16,
                        verbose_name="audience",
                    ),
                ),
                (
                    "priority",
                    models.FloatField(
                        blank=True,
                        null=True,
                        validators=[
                            django.core.validators.MinValueValidator(0),
                            django.core.validators.MaxValueValidator(1),
                        ],
                        verbose_name="priority",
                    ),
                ),
                (
                    "text",
                    models.TextField(
                        blank=True, validators=[django.core.validators.MaxLengthValidator(1048576)], verbose_name="text"
                    ),
                ),
                ("data", models.BinaryField(blank=True, null=True, verbose_name="file")),
                ("size", models.PositiveIntegerField(default=0, editable=False, verbose_name="bytes")),
            ],
            options={
                "verbose_name": "resource",
                "verbose_name_plural": "resources",
                "ordering": ["uri", "server"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("server", "uri"),
                        name="mcp_stored_resource_uri",
                        violation_error_message="This server already has a resource with this URI.",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="StoredResourceVersion",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("number", models.PositiveIntegerField(verbose_name="version")),
                ("created", models.DateTimeField(auto_now_add=True, verbose_name="saved")),
                ("username", models.CharField(blank=True, max_length=150, verbose_name="username")),
                ("note", models.CharField(blank=True, max_length=200, verbose_name="note")),
                ("changes", models.JSONField(default=list, verbose_name="changes")),
                ("data", models.JSONField(verbose_name="content")),
                (
                    "stored",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="versions",
                        to="mcp_django.storedresource",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="by",
                    ),
                ),
            ],
            options={
                "verbose_name": "version of a resource",
                "verbose_name_plural": "versions of resources",
                "ordering": ["-number"],
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="StreamEvent",
            fields=[
                ("seq", models.PositiveBigIntegerField(primary_key=True, serialize=False, verbose_name="number")),
                ("topic", models.CharField(max_length=191, verbose_name="topic")),
                ("kind", models.CharField(max_length=32, verbose_name="kind")),
                ("payload", models.TextField(verbose_name="payload")),
                ("created", models.DateTimeField(default=django.utils.timezone.now, verbose_name="created")),
            ],
            options={
                "verbose_name": "event",
                "verbose_name_plural": "events",
                "default_permissions": (),
                "indexes": [models.Index(fields=["topic", "seq"], name="mcp_event_topic_seq")],
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
                        max_length=64,
                        verbose_name="server",
                    ),
                ),
                (
                    "tool",
                    models.CharField(
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
                        verbose_name="disabled",
                    ),
                ),
                (
                    "scopes",
                    models.JSONField(
                        blank=True,
                        default=list,
                        validators=[mcp_django.models.token.check_scopes],
                        verbose_name="scopes",
                    ),
                ),
                (
                    "groups",
                    models.JSONField(
                        blank=True,
                        default=list,
                        validators=[mcp_django.models.rules.check_names],
                        verbose_name="groups",
                    ),
                ),
                (
                    "rate",
                    models.CharField(
                        blank=True,
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
        migrations.CreateModel(
            name="ClientToken",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("key", models.CharField(editable=False, max_length=64, unique=True, verbose_name="key")),
                ("alias", models.CharField(max_length=64, verbose_name="server")),
                ("server", models.CharField(max_length=2000, verbose_name="URL")),
                (
                    "issuer",
                    models.CharField(blank=True, default="", max_length=2000, verbose_name="authorization server"),
                ),
                ("grant", models.TextField(blank=True, default="", editable=False, verbose_name="sealed tokens")),
                (
                    "registration",
                    models.TextField(blank=True, default="", editable=False, verbose_name="sealed registration"),
                ),
                ("scopes", models.TextField(blank=True, default="", verbose_name="scopes")),
                ("wanted", models.TextField(blank=True, default="", editable=False, verbose_name="scopes asked for")),
                ("generation", models.PositiveBigIntegerField(default=0, editable=False, verbose_name="generation")),
                (
                    "renewing_until",
                    models.DateTimeField(
                        blank=True, editable=False, null=True, verbose_name="locked for renewal until"
                    ),
                ),
                ("expires_at", models.DateTimeField(blank=True, null=True, verbose_name="expires")),
                (
                    "created",
                    models.DateTimeField(default=django.utils.timezone.now, editable=False, verbose_name="created"),
                ),
                (
                    "updated",
                    models.DateTimeField(default=django.utils.timezone.now, editable=False, verbose_name="renewed"),
                ),
                (
                    "user",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="user",
                    ),
                ),
            ],
            options={
                "verbose_name": "connection to a remote server",
                "verbose_name_plural": "connections to remote servers",
                "ordering": ["alias", "pk"],
                "indexes": [models.Index(fields=["alias", "user"], name="mcp_client_token_owner")],
            },
        ),
        migrations.CreateModel(
            name="ExternalIdentity",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "issuer",
                    models.CharField(max_length=255, verbose_name="issuer"),
                ),
                (
                    "subject",
                    models.CharField(
                        max_length=255,
                        verbose_name="subject",
                    ),
                ),
                (
                    "origin",
                    models.CharField(
                        choices=[
                            ("person", "a person"),
                            ("email", "the e-mail address"),
                            ("username", "the username"),
                            ("create", "the account's creation"),
                        ],
                        default="person",
                        editable=False,
                        max_length=16,
                        verbose_name="linked by",
                    ),
                ),
                ("created", models.DateTimeField(auto_now_add=True, verbose_name="created")),
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
                "verbose_name": "external identity",
                "verbose_name_plural": "external identities",
                "ordering": ["issuer", "subject"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("issuer", "subject"),
                        name="mcp_external_identity",
                        violation_error_message="This subject of the issuer already has an account.",
                    )
                ],
            },
        ),
        migrations.AddIndex(
            model_name="session",
            index=models.Index(
                condition=models.Q(("terminated_at", None)), fields=["server", "last_seen"], name="mcp_session_live"
            ),
        ),
        migrations.AddConstraint(
            model_name="session",
            constraint=models.UniqueConstraint(fields=("owner", "slot"), name="mcp_session_owner_slot"),
        ),
        migrations.AddConstraint(
            model_name="resourcesubscription",
            constraint=models.UniqueConstraint(fields=("session", "uri_hash"), name="mcp_subscription_session_uri"),
        ),
        migrations.AddConstraint(
            model_name="storedargument",
            constraint=models.UniqueConstraint(
                fields=("prompt", "name"),
                name="mcp_stored_argument_name",
                violation_error_message="The prompt already has an argument with this name.",
            ),
        ),
        migrations.AddConstraint(
            model_name="storedpromptversion",
            constraint=models.UniqueConstraint(fields=("stored", "number"), name="mcp_prompt_version"),
        ),
        migrations.AddConstraint(
            model_name="storedresourceversion",
            constraint=models.UniqueConstraint(fields=("stored", "number"), name="mcp_resource_version"),
        ),
    ]
