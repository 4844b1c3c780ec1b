"""Choice of the callers whose access a page compares."""

from typing import Any

from django import forms
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from mcp_django import wiring
from mcp_django.models import PersonalAccessToken


class AccessForm(forms.Form):
    """Choice of the callers to compare, or of one tool."""

    server = forms.ChoiceField(label=gettext_lazy("Server"))
    users = forms.CharField(
        label=gettext_lazy("Users"), required=False, help_text=gettext_lazy("User names, separated by commas.")
    )
    group = forms.ModelChoiceField(
        Group.objects.order_by("name"),
        label=gettext_lazy("Members of the group"),
        required=False,
    )
    token = forms.ModelMultipleChoiceField(
        PersonalAccessToken.objects.none(), label=gettext_lazy("Personal access tokens"), required=False
    )
    client = forms.CharField(
        label=gettext_lazy("Client"),
        required=False,
        help_text=gettext_lazy("Identifier of a client that the users act through."),
    )
    scopes = forms.CharField(
        label=gettext_lazy("Scopes"),
        required=False,
        help_text=gettext_lazy("Scopes that the users delegate to the client, separated by spaces."),
    )
    tool = forms.CharField(
        label=gettext_lazy("Only this name"),
        required=False,
        help_text=gettext_lazy("Without users, group and tokens: all users are compared."),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["server"].choices = [(alias, alias) for alias in wiring.list_aliases()]  # type: ignore[attr-defined]  # a ChoiceField
        tokens = PersonalAccessToken.objects.usable().select_related("user")
        self.fields["token"].queryset = tokens  # type: ignore[attr-defined]  # a ModelChoiceField

    def clean_users(self) -> list[Any]:
        """Return the users of the names."""
        names = [name.strip() for name in self.cleaned_data["users"].split(",") if name.strip()]
        model = get_user_model()
        found = model._default_manager.filter(**{f"{model.USERNAME_FIELD}__in": names})
        by_name = {user.get_username(): user for user in found}
        unknown = [name for name in names if name not in by_name]
        if unknown:
            raise forms.ValidationError(_("Unknown users: %s") % ", ".join(unknown))
        return [by_name[name] for name in dict.fromkeys(names)]

    def clean_scopes(self) -> frozenset[str]:
        return frozenset(self.cleaned_data["scopes"].split())
