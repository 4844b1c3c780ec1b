"""Admin of stored skills: the text, files, drafts, versions, and the entry that clients get."""

import json
from collections.abc import Iterator
from typing import Any

from django import forms
from django.contrib import admin
from django.forms.models import BaseInlineFormSet
from django.http import HttpRequest
from django.template.defaultfilters import filesizeformat
from django.utils.translation import gettext_lazy as _

from mcp_django import wiring
from mcp_django.contrib.skills.models import MAX_FILE_BYTES, StoredSkill, StoredSkillFile
from mcp_django.contrib.skills.packages import check_package
from mcp_django.contrib.skills.rows import StoredSkills
from mcp_django.extensions.admin_pages import (
    MAX_SHOWN_CHARS,
    PartInline,
    Preview,
    PreviewBlock,
    StoredAdmin,
    StoredForm,
)
from mcp_django.extensions.primitives import Primitive
from mcp_django.protocol.skills import MAX_SKILL_FILES, SKILL_FILE, InvalidSkill
from mcp_django.schema.frontmatter import find_ambiguous_values

NEW_TEXT = "---\nname: refunds\ndescription: What the skill is for, and when to use it.\n---\n\n# Steps\n\n1. \n"


class SkillForm(StoredForm):
    """Form of a skill."""

    class Meta:
        model = StoredSkill
        fields = ["path", "text", "server", "enabled", "permission", "scopes", "title", "tags"]
        widgets = {
            "path": forms.TextInput(attrs={"size": 60}),
            "text": forms.Textarea(attrs={"rows": 24, "cols": 100}),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        text = self.fields.get("text")
        if isinstance(text, forms.CharField):
            text.strip = False


class SkillFileForm(forms.ModelForm):  # type: ignore[type-arg]  # not generic at run time
    """Form of a file, whose bytes are stored as they are uploaded."""

    upload = forms.FileField(required=False, label=_("Upload a file"), allow_empty_file=True)

    class Meta:
        model = StoredSkillFile
        fields = ["path"]
        widgets = {"path": forms.TextInput(attrs={"size": 40})}

    def clean(self) -> Any:
        data: dict[str, Any] = super().clean() or self.cleaned_data
        upload = data.get("upload")
        if upload is not None and upload.size > MAX_FILE_BYTES:
            self.add_error("upload", _("The file is too large: upload a smaller one."))
        elif upload is not None:
            self.instance.data = upload.read()
        elif self.instance.pk is None and data.get("path"):
            self.add_error("upload", _("Choose a file."))
        return data


class SkillFileFormSet(BaseInlineFormSet):  # type: ignore[type-arg]  # not generic at run time
    """Form set of the files. Together with the text they must be a valid skill."""

    def clean(self) -> None:
        super().clean()
        if any(self.errors) or self.instance.text == "":
            return
        kept = [form for form in self.forms if form not in self.deleted_forms and form.cleaned_data.get("path")]
        files = {form.cleaned_data["path"]: bytes(form.instance.data) for form in kept}
        try:
            package = check_package({**files, SKILL_FILE: self.instance.text.replace("\r\n", "\n").encode()})
        except InvalidSkill as problem:
            raise forms.ValidationError(_("Invalid skill: %s.") % problem) from None
        if package.skipped:
            text = _("Files with these names are never served: %s. Rename or remove them.")
            raise forms.ValidationError(text % ", ".join(package.skipped))


class SkillFileInline(PartInline, admin.TabularInline):  # type: ignore[type-arg]  # not generic at run time
    """Files of a skill, which are uploaded and shown with their sizes."""

    model = StoredSkillFile
    form = SkillFileForm
    formset = SkillFileFormSet
    fields = ["path", "upload", "size"]
    readonly_fields = ["size"]
    ordering = ["path"]
    help_texts = {"path": _("Below the skill, such as “a/b.md”.")}
    max_num = MAX_SKILL_FILES - 1

    @admin.display(description=_("size"))
    def size(self, row: StoredSkillFile) -> str:
        """Return the size of the file."""
        return "-" if row._state.adding else filesizeformat(len(bytes(row.data)))


@admin.register(StoredSkill)
class StoredSkillAdmin(StoredAdmin):
    """Admin of stored skills."""

    form = SkillForm
    inlines = [SkillFileInline]
    list_display = ["path", "description", "state", "permission", "updated"]
    search_fields = ["path", "title", "description", "text"]
    fieldsets = [
        (None, {"fields": ["path", "text"]}),
        (_("Who gets it"), {"fields": ["enabled", "server", "permission", "scopes"]}),
        (_("Hints for clients"), {"fields": ["title", "tags"]}),
    ]
    help_texts = {
        **StoredAdmin.help_texts,
        "path": _("Such as “shop/refunds”. Its last name is the name in SKILL.md."),
        "enabled": _("A skill that is not published is a draft, hidden from all clients."),
        "text": _("Begins with the frontmatter: name and description, between two lines of three hyphens."),
    }

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        return {"text": NEW_TEXT, **super().get_changeform_initial_data(request)}

    def get_serving_aliases(self, row: Any) -> list[str]:
        """Return the aliases of the servers that the row is for and that have the provider `StoredSkills`."""
        return [
            alias
            for alias in wiring.list_aliases()
            if row.server in ("", alias)
            and any(isinstance(provider, StoredSkills) for provider in wiring.get_server(alias).providers)
        ]

    def find_conflict(self, row: StoredSkill, alias: str) -> Primitive | None:
        registry = wiring.get_server(alias).registry
        match = registry.match(row.key)
        return registry.resources.get(row.key) or (None if match is None else match[0])

    def get_warnings(self, row: StoredSkill) -> Iterator[str]:
        yield from super().get_warnings(row)
        values = find_ambiguous_values(row.text.encode())
        if values:
            text = _("YAML 1.1 reads these values of the frontmatter differently; quote them: %s")
            yield text % ", ".join(values)[:200]
        if row.enabled and not self.get_serving_aliases(row):
            yield str(_("No server has the provider of stored skills: name it in PROVIDERS."))

    def build_preview(self, row: StoredSkill, alias: str, request: HttpRequest) -> tuple[forms.Form | None, Preview]:
        """Return the entry that clients get, and the text of each file."""
        try:
            package = row.build_package()
        except InvalidSkill as problem:
            return None, Preview([], "", str(problem))
        entry = json.dumps(package.manifest.to_entry(row.key), indent=2, ensure_ascii=False)
        blocks = [PreviewBlock(path, _show(data)) for path, data in package.files.items()]
        return None, Preview(blocks, entry[:MAX_SHOWN_CHARS], "")


def _show(data: bytes) -> str:
    try:
        return data.decode()[:MAX_SHOWN_CHARS]
    except UnicodeError:
        return str(_("%d bytes") % len(data))
