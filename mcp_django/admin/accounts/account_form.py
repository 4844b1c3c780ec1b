"""Form of a service account: required fields of the user model, owner and rights."""

from collections.abc import Mapping
from typing import Any

from django import forms
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, Permission
from django.core.exceptions import FieldDoesNotExist, ValidationError
from django.db.models import QuerySet
from django.forms.models import fields_for_model
from django.utils.translation import gettext_lazy as _

from mcp_django.admin.widgets import BoxesInput
from mcp_django.models import ServiceAccount
from mcp_django.models.service_account import get_user_fields

PREFIX = "user_"
"""Prefix of the fields of the user model in the form."""


class ServiceAccountForm(forms.ModelForm):  # type: ignore[type-arg]  # not generic at run time
    """Form of an account.

    `build_account_form` adds the fields of the user, and the rights that the operator can give.
    """

    operator: Any
    user: Any
    """User of the account, which is not saved before the account is."""

    class Meta:
        model = ServiceAccount
        fields = ["owner", "description"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        is_new = self.instance._state.adding
        self.user = get_user_model()() if is_new else self.instance.user
        if "owner" in self.fields:
            self.fields["owner"].required = is_new
        for name in get_rights_fields():
            if name in self.fields and not is_new:
                self.initial.setdefault(name, list(getattr(self.user, name).all()))

    def clean_owner(self) -> Any:
        """Refuse an owner who cannot answer for the account."""
        owner = self.cleaned_data["owner"]
        if owner is not None and owner != self.instance.owner and not owner.is_active:
            raise ValidationError(_("%(user)s is not active."), code="inactive", params={"user": owner})
        return owner

    def _post_clean(self) -> None:
        super()._post_clean()  # type: ignore[misc]  # not in the stubs
        if not self.instance._state.adding:
            return
        names = [name for name in get_user_fields() if PREFIX + name in self.cleaned_data]
        _fill_user(self, names)
        try:
            self.user.full_clean(exclude=_list_other_fields(names))
        except ValidationError as problem:
            for name, errors in problem.error_dict.items():
                self.add_error(PREFIX + name if PREFIX + name in self.fields else None, errors)

    def save_rights(self, user: Any) -> None:
        """Save the groups and permissions of the user."""
        for name in get_rights_fields():
            if name in self.cleaned_data:
                getattr(user, name).set(self.cleaned_data[name])


def build_account_form(operator: Any, account: ServiceAccount | None) -> type[ServiceAccountForm]:
    """Return the form for an operator, with the operator's own groups and permissions as choices."""
    fields: dict[str, Any] = {}
    if account is None:
        model_fields: Mapping[str, Any] = fields_for_model(get_user_model(), fields=get_user_fields())
        fields |= {PREFIX + name: field for name, field in model_fields.items()}
    choices = {"groups": list_own_groups, "user_permissions": list_own_permissions}
    for name in get_rights_fields():
        field = get_user_model()._meta.get_field(name)
        fields[name] = forms.ModelMultipleChoiceField(
            choices[name](operator),
            required=False,
            label=field.verbose_name,  # type: ignore[union-attr]  # a field, not a relation
            help_text=_("You can choose those that you have yourself."),
            widget=BoxesInput(field.verbose_name, False),  # type: ignore[union-attr]
        )
    return type("OperatorAccountForm", (ServiceAccountForm,), {"operator": operator, **fields})


def get_rights_fields() -> list[str]:
    """Return the names of the relations of the user model that give rights."""
    found = []
    for name, model in (("groups", Group), ("user_permissions", Permission)):
        try:
            field = get_user_model()._meta.get_field(name)
        except FieldDoesNotExist:
            continue
        if field.many_to_many and field.related_model is model:
            found.append(name)
    return found


def list_own_groups(operator: Any) -> QuerySet[Any]:
    """Return the groups of an operator; all groups for a superuser."""
    groups = Group.objects.order_by("name")
    return groups if operator.is_superuser else groups.filter(pk__in=operator.groups.values("pk"))


def list_own_permissions(operator: Any) -> QuerySet[Any]:
    """Return the permissions of an operator; all permissions for a superuser."""
    permissions = Permission.objects.select_related("content_type")
    if operator.is_superuser:
        return permissions
    held = operator.get_all_permissions()
    keys = [row.pk for row in permissions if f"{row.content_type.app_label}.{row.codename}" in held]
    return permissions.filter(pk__in=keys)


def _fill_user(form: ServiceAccountForm, names: list[str]) -> None:
    """Set the fields of the new user from the cleaned values."""
    model_fields = {field.name: field for field in get_user_model()._meta.fields}
    for name in names:
        model_fields[name].save_form_data(form.user, form.cleaned_data[PREFIX + name])


def _list_other_fields(names: list[str]) -> set[str]:
    return {field.name for field in get_user_model()._meta.fields} - set(names)
