"""Resources written or uploaded in the admin."""

import base64
import re
from typing import Any, ClassVar

from django.core.exceptions import ValidationError
from django.core.validators import MaxLengthValidator, MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.utils.translation import gettext_lazy as _

from mcp_django.models.rows import PrimaryManager, VersionedQuerySet
from mcp_django.models.stored.base import Stored
from mcp_django.protocol.uri import UriTemplate

MAX_URI_CHARS = 500
"""Maximum number of characters of a URI."""
MAX_TEXT_CHARS = 1024 * 1024
"""Maximum number of characters of a text."""
MAX_FILE_BYTES = 4 * 1024 * 1024
"""Maximum number of bytes of a file."""

_SCHEME = re.compile(r"[a-z][a-z0-9+.\-]*:.")


def check_uri(uri: str) -> None:
    """Raise ValidationError unless `uri` is an absolute URI (RFC 3986) without variables."""
    try:
        is_valid = uri.isascii() and bool(_SCHEME.match(uri)) and UriTemplate(uri).is_static
    except ValueError:
        is_valid = False
    if not is_valid:
        message = _(
            "A URI looks like “docs://refunds”: a scheme in small letters, a colon, and the rest without spaces, "
            "braces and accents, which are percent-encoded."
        )
        raise ValidationError(message, code="uri")


class Audience(models.TextChoices):
    """Intended audience of a resource."""

    USER = "user", _("people")
    ASSISTANT = "assistant", _("models")
    BOTH = "user assistant", _("people and models")


class StoredResourceQuerySet(VersionedQuerySet["StoredResource"]):
    """Query set of resources."""

    def get_by_natural_key(self, server: str, uri: str) -> "StoredResource":
        return self.get(server=server, uri=uri)


class StoredResource(Stored):
    """Resource stored as a row: a text, or the bytes of a file."""

    SNAPSHOT_FIELDS: ClassVar[tuple[str, ...]] = (
        "uri",
        "name",
        *Stored.SNAPSHOT_FIELDS,
        "mime_type",
        "audience",
        "priority",
        "text",
    )

    uri = models.CharField(
        _("URI"),
        max_length=MAX_URI_CHARS,
        validators=[check_uri],
    )
    name = models.CharField(_("name"), max_length=200)
    mime_type = models.CharField(
        _("MIME type"),
        max_length=150,
        blank=True,
        validators=[
            RegexValidator(
                r"\A[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+(?:; ?[A-Za-z0-9_-]+=[A-Za-z0-9_.+-]+)*\Z",
                _("A MIME type looks like “text/markdown”."),
            )
        ],
    )
    audience = models.CharField(_("audience"), max_length=16, choices=Audience, blank=True)
    priority = models.FloatField(
        _("priority"),
        null=True,
        blank=True,
        validators=[MinValueValidator(0), MaxValueValidator(1)],
    )
    text = models.TextField(_("text"), blank=True, validators=[MaxLengthValidator(MAX_TEXT_CHARS)])
    data = models.BinaryField(_("file"), null=True, blank=True)
    size = models.PositiveIntegerField(_("bytes"), default=0, editable=False)

    objects = PrimaryManager.from_queryset(StoredResourceQuerySet)()

    class Meta:
        verbose_name = _("resource")
        verbose_name_plural = _("resources")
        ordering = ["uri", "server"]
        constraints = [
            models.UniqueConstraint(
                fields=["server", "uri"],
                name="mcp_stored_resource_uri",
                violation_error_message=_("This server already has a resource with this URI."),
            )
        ]

    def __str__(self) -> str:
        return f"{self.uri} ({self.server})" if self.server else self.uri

    @property
    def key(self) -> str:
        return self.uri

    @property
    def content(self) -> str | bytes:
        """The text, or the bytes of the file."""
        return self.text if self.data is None else bytes(self.data)

    def natural_key(self) -> tuple[str, str]:
        return self.server, self.uri

    def save(self, *args: Any, **kwargs: Any) -> None:
        content = self.content
        self.size = len(content.encode() if isinstance(content, str) else content)
        fields = kwargs.get("update_fields")
        if fields is not None:
            kwargs["update_fields"] = {*fields, "size", "updated"}
        super().save(*args, **kwargs)

    def snapshot(self) -> dict[str, Any]:
        data = None if self.data is None else base64.b64encode(bytes(self.data)).decode()
        return {**super().snapshot(), "data": data}

    def apply_snapshot(self, data: dict[str, Any]) -> None:
        encoded = data.get("data")
        self.data = None if encoded is None else base64.b64decode(encoded)
        super().apply_snapshot(data)

    def clean(self) -> None:
        if self.data is not None and len(bytes(self.data)) > MAX_FILE_BYTES:
            raise ValidationError({"data": _("The file is too large: the limit is %d bytes.") % MAX_FILE_BYTES})
        if self.data is not None and self.text:
            raise ValidationError({"text": _("A resource has either a text or a file: remove one of them.")})
