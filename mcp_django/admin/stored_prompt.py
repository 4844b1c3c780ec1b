"""Admin of stored prompts: arguments, messages, previews and versions."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.options import InlineModelAdmin
from django.contrib.auth import get_permission_codename
from django.db.models import QuerySet
from django.forms.models import BaseInlineFormSet
from django.http import HttpRequest
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from mcp_django import wiring
from mcp_django.admin.preview import Preview, preview_prompt
from mcp_django.admin.stored import StoredAdmin, StoredForm
from mcp_django.admin.widgets import LinesField
from mcp_django.models import StoredArgument, StoredMessage, StoredPrompt
from mcp_django.models.stored.prompt import MAX_ARGUMENTS, MAX_MESSAGES
from mcp_django.models.stored.template_strings import find_placeholders
from mcp_django.server.primitives.base import Primitive


class PromptForm(StoredForm):
    """Form of a prompt."""

    class Meta:
        model = StoredPrompt
        fields = ["name", "title", "description", "server", "enabled", "permission", "scopes", "tags"]


class ArgumentForm(forms.ModelForm):  # type: ignore[type-arg]  # not generic at run time
    """Form of an argument."""

    choices = LinesField(
        required=False,
        label=_("Choices"),
        help_text=_("One choice per line. Users see them as suggestions; other values are rejected."),
        widget=forms.Textarea(attrs={"rows": 3, "cols": 40}),
    )

    class Meta:
        model = StoredArgument
        fields = ["name", "title", "description", "required", "default", "choices", "position"]
        widgets = {
            "name": forms.TextInput(attrs={"size": 40}),
            "title": forms.TextInput(attrs={"size": 40}),
            "description": forms.Textarea(attrs={"rows": 2, "cols": 80}),
            "default": forms.Textarea(attrs={"rows": 2, "cols": 40}),
            "position": forms.NumberInput(attrs={"min": 0}),
        }


class MessageForm(forms.ModelForm):  # type: ignore[type-arg]  # not generic at run time
    """Form of a message."""

    class Meta:
        model = StoredMessage
        fields = ["role", "kind", "position", "text", "uri"]
        widgets = {
            "text": forms.Textarea(attrs={"rows": 8, "cols": 100}),
            "uri": forms.TextInput(attrs={"size": 80}),
        }


class ArgumentFormSet(BaseInlineFormSet):  # type: ignore[type-arg]  # not generic at run time
    """Form set of the arguments. Django validates it before the messages."""

    def clean(self) -> None:
        super().clean()
        self.instance.arguments_meant = [data["name"] for data in _iter_kept_data(self) if data.get("name")]


class MessageFormSet(BaseInlineFormSet):  # type: ignore[type-arg]  # not generic at run time
    """Form set of the messages. Their placeholders must be names of arguments."""

    def clean(self) -> None:
        super().clean()
        known = getattr(self.instance, "arguments_meant", [])
        message_count = 0

        for form in self.forms:
            data = getattr(form, "cleaned_data", {})
            if data.get("DELETE") or (self._is_empty(form) and not form.errors):
                continue
            message_count += 1
            for field in ("text", "uri"):
                for name in find_placeholders(data.get(field) or ""):
                    if name not in known:
                        form.add_error(field, _describe_unknown_placeholder(name, known))

        if message_count == 0 and not self.non_form_errors():
            raise forms.ValidationError(_("A prompt needs at least one message."))

    def _is_empty(self, form: Any) -> bool:
        return bool(form.empty_permitted and not form.has_changed())


def _describe_unknown_placeholder(name: str, known: list[str]) -> str:
    """Return the error of a placeholder without an argument, with the most similar argument."""
    similar = get_close_matches(name, known, n=1)
    if similar:
        text = gettext("Invalid placeholder $%(name)s. Did you mean $%(similar)s?")
        return text % {"name": name, "similar": similar[0]}
    return gettext("Invalid placeholder $%(name)s: the prompt has no argument with this name.") % {"name": name}


def _iter_kept_data(formset: Any) -> Iterator[dict[str, Any]]:
    for form in formset.forms:
        data = getattr(form, "cleaned_data", {})
        if not data.get("DELETE"):
            yield data


class PartInline(InlineModelAdmin):  # type: ignore[type-arg]  # not generic at run time
    """Inline rows that follow the permissions of their prompt, or of another stored row.

    They have no permissions of their own.
    """

    extra = 0
    ordering = ["position", "pk"]
    help_texts: Mapping[str, Any] = {}
    """Help texts of the model's fields by name, as in `BaseAdmin`."""

    def get_formset(self, request: HttpRequest, obj: Any = None, **kwargs: Any) -> Any:
        kwargs.setdefault("help_texts", self.help_texts or None)
        return super().get_formset(request, obj, validate_max=True, **kwargs)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self._has_row_permission(request, "view") or self._has_row_permission(request, "change")

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self._has_row_permission(request, "change" if obj is not None else "add")

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.has_add_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.has_add_permission(request, obj)

    def _has_row_permission(self, request: HttpRequest, action: str) -> bool:
        user: Any = request.user
        opts = self.parent_model._meta
        return bool(user.has_perm(f"{opts.app_label}.{get_permission_codename(action, opts)}"))


class ArgumentInline(PartInline):
    """Inline rows of the arguments."""

    template = "admin/edit_inline/stacked.html"

    model = StoredArgument
    form, formset = ArgumentForm, ArgumentFormSet
    max_num = MAX_ARGUMENTS
    help_texts = {
        "position": _("0 places it last."),
        "name": _("Messages refer to it as $name."),
        "default": _("Used when the caller gives no value."),
        "choices": _("Suggested while people type; other values are rejected."),
    }


class MessageInline(PartInline):
    """Inline rows of the messages."""

    template = "admin/edit_inline/stacked.html"

    model = StoredMessage
    form, formset = MessageForm, MessageFormSet
    max_num = MAX_MESSAGES
    fields = [("role", "kind"), "text", "uri", "position"]
    help_texts = {
        "position": _("0 places it last."),
        "text": _("$name or ${name} inserts an argument, $$ a dollar sign. For a link: its name."),
        "uri": _("URI of the resource; $name inserts an argument, percent-encoded."),
    }

    def get_extra(self, request: HttpRequest, obj: Any = None, **kwargs: Any) -> int:
        return 1 if obj is None else 0


@admin.register(StoredPrompt)
class StoredPromptAdmin(StoredAdmin):
    """Admin of stored prompts."""

    form = PromptForm
    inlines = [ArgumentInline, MessageInline]
    list_display = ["name", "title", "state", "permission", "updated"]
    search_fields = ["name", "title", "description"]
    fieldsets = [
        (None, {"fields": ["name", "title", "description", "tags"]}),
        (_("Who gets it"), {"fields": ["server", "enabled", "permission", "scopes"]}),
    ]
    help_texts = {
        **StoredAdmin.help_texts,
        "name": _("Name that clients request; many show it as a command, such as /name."),
    }

    def find_conflict(self, row: StoredPrompt, alias: str) -> Primitive | None:
        return wiring.get_server(alias).registry.prompts.get(row.name)

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        for formset in formsets:
            _assign_positions(formset)
        super().save_related(request, form, formsets, change)

    def normalize(self, row: StoredPrompt) -> None:
        row.renumber()

    def get_warnings(self, row: StoredPrompt) -> Iterator[str]:
        yield from super().get_warnings(row)
        used = {
            name
            for message in _get_messages(row)
            for text in (message.text, message.uri)
            for name in find_placeholders(text)
        }
        unused = [argument.name for argument in _get_arguments(row) if argument.name not in used]
        if unused:
            yield _("No message uses %s.") % ", ".join(f"${name}" for name in unused)

    def build_preview(
        self, row: StoredPrompt, alias: str, request: HttpRequest
    ) -> tuple[forms.Form | None, Preview | None]:
        arguments = list(_get_arguments(row))
        form = SampleForm(arguments, request.POST if request.method == "POST" else None)
        given = form.get_samples()
        return (form if arguments else None), preview_prompt(row, given, alias=alias, user=request.user)


class SampleForm(forms.Form):
    """Form with sample values for a prompt.

    The server validates the values, as it would for a client.
    """

    def __init__(self, arguments: "list[StoredArgument]", data: Any = None) -> None:
        super().__init__(data, prefix="argument")
        for argument in arguments:
            label, sample = (
                argument.title or argument.name,
                argument.default or (argument.choices[0] if argument.choices else f"«{argument.name}»"),
            )
            field = forms.CharField(
                label=label, required=False, help_text=argument.description, initial=sample, strip=False
            )
            field.widget = forms.Textarea(attrs={"rows": 2, "cols": 60})
            if argument.choices:
                options = [("", "—"), *((choice, choice) for choice in argument.choices)]
                field.widget = forms.Select(choices=options)
            self.fields[argument.name] = field

    def get_samples(self) -> dict[str, str]:
        """Return the values by argument name. Empty fields are left out."""
        if not self.is_bound:
            return {name: str(field.initial) for name, field in self.fields.items()}
        values = {name: self[name].data for name in self.fields}
        return {name: str(value).replace("\r\n", "\n") for name, value in values.items() if value}


def _assign_positions(formset: Any) -> None:
    """Place rows without a position after those with one, in the order of the page."""
    last = max((form.instance.position or 0 for form in formset.forms), default=0)
    for form in formset.extra_forms:
        if not form.instance.position:
            last += 1
            form.instance.position = last


def _get_arguments(row: StoredPrompt) -> "QuerySet[StoredArgument]":
    return StoredArgument.objects.filter(prompt=row)


def _get_messages(row: StoredPrompt) -> "QuerySet[StoredMessage]":
    return StoredMessage.objects.filter(prompt=row)
