"""Prompts written in the admin: arguments, and messages with placeholders."""

from typing import Any, ClassVar

from django.core.exceptions import ValidationError
from django.core.validators import MaxLengthValidator, RegexValidator
from django.db import models, transaction
from django.utils.translation import gettext_lazy as _

from mcp_django.models.rows import PrimaryManager, VersionedQuerySet
from mcp_django.models.stored.base import MAX_DESCRIPTION_CHARS, Stored, StoredRow, check_name
from mcp_django.models.stored.resource import MAX_URI_CHARS, check_uri
from mcp_django.models.stored.template_strings import NAME_PATTERN, fill_uri, find_placeholders, has_valid_placeholders

MAX_ARGUMENTS = 50
"""Maximum number of arguments of one prompt."""
MAX_MESSAGES = 100
"""Maximum number of messages of one prompt."""
MAX_CHOICES = 500
"""Maximum number of choices of an argument, and of characters of each choice."""
MAX_MESSAGE_CHARS = 100_000
"""Maximum number of characters of one message."""


class StoredPromptQuerySet(VersionedQuerySet["StoredPrompt"]):
    """Query set of prompts."""

    def get_by_natural_key(self, server: str, name: str) -> "StoredPrompt":
        return self.get(server=server, name=name)


class StoredPrompt(Stored):
    """Prompt stored as a row."""

    SNAPSHOT_FIELDS: ClassVar[tuple[str, ...]] = ("name", *Stored.SNAPSHOT_FIELDS)

    name = models.CharField(
        _("name"),
        max_length=64,
        validators=[check_name],
    )

    objects = PrimaryManager.from_queryset(StoredPromptQuerySet)()

    class Meta:
        verbose_name = _("prompt")
        verbose_name_plural = _("prompts")
        ordering = ["name", "server"]
        constraints = [
            models.UniqueConstraint(
                fields=["server", "name"],
                name="mcp_stored_prompt_name",
                violation_error_message=_("This server already has a prompt with this name."),
            )
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.server})" if self.server else self.name

    @property
    def key(self) -> str:
        return self.name

    def natural_key(self) -> tuple[str, str]:
        return self.server, self.name

    def snapshot(self) -> dict[str, Any]:
        parts: Any = self
        return {
            **super().snapshot(),
            "arguments": [part.snapshot() for part in parts.arguments.order_by("position", "pk")],
            "messages": [part.snapshot() for part in parts.messages.order_by("position", "pk")],
        }

    def apply_snapshot(self, data: dict[str, Any]) -> None:
        with transaction.atomic(using=self._state.db, savepoint=False):
            super().apply_snapshot(data)
            for model, name in ((StoredArgument, "arguments"), (StoredMessage, "messages")):
                getattr(self, name).all().delete()
                for position, fields in enumerate(data.get(name, ()), start=1):
                    part = model(prompt=self, position=position, **fields)
                    part.full_clean()
                    part.save()

    def renumber(self) -> None:
        """Number arguments and messages from 1 in their current order."""
        parts: Any = self
        for rows in (parts.arguments, parts.messages):
            for position, part in enumerate(rows.order_by("position", "pk"), start=1):
                if part.position != position:
                    part.position = position
                    part.save(update_fields=["position"])


class StoredArgumentQuerySet(VersionedQuerySet["StoredArgument"]):
    """Query set of arguments."""

    def get_by_natural_key(self, server: str, prompt: str, name: str) -> "StoredArgument":
        return self.get(prompt__server=server, prompt__name=prompt, name=name)


class StoredArgument(StoredRow):
    """Argument of a prompt."""

    SNAPSHOT_FIELDS: ClassVar[tuple[str, ...]] = ("name", "title", "description", "required", "default", "choices")

    prompt = models.ForeignKey(StoredPrompt, on_delete=models.CASCADE, related_name="arguments")
    position = models.PositiveSmallIntegerField(_("position"), default=0)
    name = models.CharField(
        _("name"),
        max_length=64,
        validators=[
            RegexValidator(
                rf"\A(?:{NAME_PATTERN.pattern})\Z",
                _("An argument's name has letters without accents, digits and _, and does not begin with a digit."),
            )
        ],
    )
    title = models.CharField(_("title"), max_length=200, blank=True)
    description = models.TextField(_("description"), blank=True, validators=[MaxLengthValidator(MAX_DESCRIPTION_CHARS)])
    required = models.BooleanField(_("required"), default=True)
    default = models.TextField(
        _("default"),
        blank=True,
        validators=[MaxLengthValidator(MAX_MESSAGE_CHARS)],
    )
    choices = models.JSONField(_("choices"), default=list, blank=True)

    objects = PrimaryManager.from_queryset(StoredArgumentQuerySet)()

    class Meta:
        verbose_name = _("argument")
        verbose_name_plural = _("arguments")
        default_permissions = ()
        ordering = ["position", "pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["prompt", "name"],
                name="mcp_stored_argument_name",
                violation_error_message=_("The prompt already has an argument with this name."),
            )
        ]

    def __str__(self) -> str:
        return self.name

    def natural_key(self) -> tuple[str, str, str]:
        return *self.prompt.natural_key(), self.name

    natural_key.dependencies = ["mcp_django.storedprompt"]  # type: ignore[attr-defined]  # an attribute that Django reads

    def clean(self) -> None:
        choices = self.choices
        if not isinstance(choices, list) or not all(isinstance(one, str) and one.strip() for one in choices):
            raise ValidationError({"choices": _("Choices must be a list of non-empty texts.")})
        if len(choices) > MAX_CHOICES or any(len(one) > MAX_CHOICES for one in choices):
            limit = _("Enter at most %d choices with at most %d characters each.") % (MAX_CHOICES, MAX_CHOICES)
            raise ValidationError({"choices": limit})
        if self.required and self.default:
            raise ValidationError({"default": _("A required argument cannot have a default.")})
        if self.default and choices and self.default not in choices:
            raise ValidationError({"default": _("The default must be one of the choices.")})


class MessageKind(models.TextChoices):
    """Kind of content of a message."""

    TEXT = "text", _("text")
    LINK = "link", _("link to a resource")
    RESOURCE = "resource", _("a resource's content")


class MessageRole(models.TextChoices):
    """Role of a message."""

    USER = "user", _("user")
    ASSISTANT = "assistant", _("assistant")


class StoredMessageQuerySet(VersionedQuerySet["StoredMessage"]):
    """Query set of messages."""

    def get_by_natural_key(self, server: str, prompt: str, position: int) -> "StoredMessage":
        return self.get(prompt__server=server, prompt__name=prompt, position=position)


class StoredMessage(StoredRow):
    """Message of a prompt."""

    SNAPSHOT_FIELDS: ClassVar[tuple[str, ...]] = ("role", "kind", "text", "uri")

    prompt = models.ForeignKey(StoredPrompt, on_delete=models.CASCADE, related_name="messages")
    position = models.PositiveSmallIntegerField(_("position"), default=0)
    role = models.CharField(_("role"), max_length=16, choices=MessageRole, default=MessageRole.USER)
    kind = models.CharField(_("kind"), max_length=16, choices=MessageKind, default=MessageKind.TEXT)
    text = models.TextField(
        _("text"),
        blank=True,
        validators=[MaxLengthValidator(MAX_MESSAGE_CHARS)],
    )
    uri = models.CharField(
        _("URI"),
        max_length=MAX_URI_CHARS,
        blank=True,
    )

    objects = PrimaryManager.from_queryset(StoredMessageQuerySet)()

    class Meta:
        verbose_name = _("message")
        verbose_name_plural = _("messages")
        default_permissions = ()
        ordering = ["position", "pk"]

    def __str__(self) -> str:
        return f"{self.position}. {self.get_role_display()}"

    def natural_key(self) -> tuple[str, str, int]:
        return *self.prompt.natural_key(), self.position

    natural_key.dependencies = ["mcp_django.storedprompt"]  # type: ignore[attr-defined]  # an attribute that Django reads

    def clean(self) -> None:
        for name in ("text", "uri"):
            if not has_valid_placeholders(getattr(self, name)):
                message = _("A $ starts a placeholder such as $name or ${name}; write $$ for a dollar sign.")
                raise ValidationError({name: message})

        if self.kind == MessageKind.TEXT:
            if not self.text.strip():
                raise ValidationError({"text": _("The message is empty: write a text.")})
            if self.uri:
                raise ValidationError(
                    {"uri": _("A text message has no URI: remove it, or choose a link or a resource's content.")}
                )
            return
        if self.kind == MessageKind.RESOURCE and self.text:
            raise ValidationError(
                {"text": _("A message with a resource's content has no text: write the text in another message.")}
            )

        try:
            check_uri(fill_uri(self.uri, dict.fromkeys(find_placeholders(self.uri), "x")))
        except ValidationError as problem:
            raise ValidationError({"uri": problem}) from None
