"""Admin of the links between subjects of identity providers and accounts."""

from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from mcp_django.admin.base import OwnedAdmin
from mcp_django.conf import get_settings
from mcp_django.models import ExternalIdentity


class ExternalIdentityForm(forms.ModelForm):  # type: ignore[type-arg]  # not generic at run time
    """Form that links a subject to a user."""

    issuer = forms.ChoiceField(label=_("Issuer"), help_text=_("An issuer from MCP[“ISSUERS”]."))

    class Meta:
        model = ExternalIdentity
        fields = ["issuer", "subject", "user"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        issuer = self.fields.get("issuer")
        if isinstance(issuer, forms.ChoiceField):
            issuer.choices = [(one.issuer, one.issuer) for one in get_settings().issuers]
            if not get_settings().issuers:
                issuer.help_text = _("MCP[“ISSUERS”] is empty.")

    def clean_subject(self) -> Any:
        subject = self.cleaned_data["subject"]
        if not subject.isprintable():
            raise ValidationError(_("Invalid subject: remove characters that are not printable."), code="subject")
        return subject


@admin.register(ExternalIdentity)
class ExternalIdentityAdmin(OwnedAdmin):
    """Create and delete links.

    Only superusers may link subjects to other users, because a linked subject has the user's rights.
    """

    form = ExternalIdentityForm
    list_display = ["subject", "issuer", "user", "origin", "created"]
    list_filter = ["issuer", "origin"]
    search_fields = ["subject", "user"]
    help_texts = {
        "issuer": _("Exactly as in the settings."),
        "subject": _("Permanent identifier of the user at the issuer."),
    }

    def get_fields(self, request: HttpRequest, obj: ExternalIdentity | None = None) -> Any:
        return ["issuer", "subject", "user", *([] if obj is None else ["origin", "created"])]
