"""Admin of stored resources: texts, uploads, previews and versions."""

import mimetypes
from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest
from django.template.defaultfilters import filesizeformat
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from mcp_django import wiring
from mcp_django.admin.preview import Preview, preview_resource
from mcp_django.admin.stored import StoredAdmin, StoredForm
from mcp_django.models import StoredResource
from mcp_django.models.stored.resource import MAX_FILE_BYTES, MAX_TEXT_CHARS
from mcp_django.server.primitives.base import Primitive

_TEXT_MIME_TYPES = ("application/json", "application/xml", "application/yaml", "application/toml")


class ResourceForm(StoredForm):
    """Form of a resource. An uploaded text file is stored as text."""

    upload = forms.FileField(
        required=False,
        label=_("Upload a file"),
        help_text=format_lazy(_("Replaces the current content. Up to {limit} MiB."), limit=MAX_FILE_BYTES // 1024**2),
    )
    remove_file = forms.BooleanField(required=False, label=_("Remove the file"))

    class Meta:
        model = StoredResource
        fields = [
            "uri",
            "name",
            "title",
            "description",
            "server",
            "enabled",
            "permission",
            "scopes",
            "tags",
            "mime_type",
            "audience",
            "priority",
            "text",
        ]
        widgets = {
            "uri": forms.TextInput(attrs={"size": 80}),
            "text": forms.Textarea(attrs={"rows": 16, "cols": 100}),
        }

    def clean_upload(self) -> Any:
        upload = self.cleaned_data["upload"]
        if upload is not None and upload.size > MAX_FILE_BYTES:
            raise forms.ValidationError(_("The file is too large: upload a smaller one."), code="size")
        return upload

    def clean(self) -> Any:
        data: dict[str, Any] = super().clean() or self.cleaned_data
        if data.get("remove_file"):
            self.instance.data = None

        upload = data.get("upload")
        if upload is None:
            return data

        content = upload.read()
        mime_type = data.get("mime_type") or mimetypes.guess_type(upload.name)[0] or ""
        text = _decode_text(content, mime_type)
        self.instance.data = content if text is None else None
        data |= {"text": "" if text is None else text, "mime_type": mime_type}
        return data


def _decode_text(content: bytes, mime_type: str) -> str | None:
    """Return the text of a file, or None if it is not a text file."""
    if len(content) > MAX_TEXT_CHARS or not (mime_type.startswith("text/") or mime_type in _TEXT_MIME_TYPES):
        return None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


@admin.register(StoredResource)
class StoredResourceAdmin(StoredAdmin):
    """Admin of stored resources."""

    form = ResourceForm
    list_display = ["uri", "name", "state", "mime_type", "bytes", "permission", "updated"]
    search_fields = ["uri", "name", "title", "description"]
    readonly_fields = ["file"]
    help_texts = {
        **StoredAdmin.help_texts,
        "uri": _("URI that clients read, such as “docs://refunds”."),
        "name": _("Name in lists; any text."),
        "mime_type": _("Such as text/markdown. Empty: derived from the file's name, or text/plain for a text."),
        "priority": _("From 0 (optional) to 1 (required)."),
    }

    def get_queryset(self, request: HttpRequest) -> Any:
        queryset = super().get_queryset(request)
        # The list shows neither text nor data.
        match = request.resolver_match
        is_list = match is not None and str(match.url_name).endswith("_changelist")
        return queryset.defer("text", "data") if is_list else queryset

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        may_change = self.has_change_permission(request, obj) if obj else self.has_add_permission(request)
        has_file = obj is not None and obj.data is not None
        content = ["mime_type", "file" if has_file else "text"]
        if may_change:
            content = ["mime_type", "file", "remove_file", "upload", "text"]
            content = content if has_file else ["mime_type", "text", "upload"]
        return [
            (None, {"fields": ["uri", "name", "title", "description", "tags"]}),
            (_("Content"), {"fields": content}),
            (_("Who gets it"), {"fields": ["server", "enabled", "permission", "scopes"]}),
            (_("Hints for clients"), {"fields": ["audience", "priority"]}),
        ]

    def find_conflict(self, row: StoredResource, alias: str) -> Primitive | None:
        registry = wiring.get_server(alias).registry
        match = registry.match(row.uri)
        return registry.resources.get(row.uri) or (None if match is None else match[0])

    def build_preview(self, row: StoredResource, alias: str, request: HttpRequest) -> tuple[forms.Form | None, Preview]:
        return None, preview_resource(row, alias=alias, user=request.user)

    @admin.display(description=_("file"))
    def file(self, row: StoredResource) -> str:
        """Return the size of the file."""
        return filesizeformat(row.size) if row.data is not None else "-"

    @admin.display(description=_("size"), ordering="size")
    def bytes(self, row: StoredResource) -> str:
        """Return the size of the content."""
        return filesizeformat(row.size)
