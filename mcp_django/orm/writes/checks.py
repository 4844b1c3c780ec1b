"""Checks of a toolset's options for writing, run when it is registered."""

from typing import TYPE_CHECKING, Any

from django.core.exceptions import FieldDoesNotExist
from django.forms.models import BaseModelForm

from mcp_django.schema import DeclarationError

if TYPE_CHECKING:
    from mcp_django.orm.inlines import ModelInline
    from mcp_django.orm.toolset import ModelToolset

CONFIRMABLE_TOOLS = ("create", "update", "delete")
"""Tools that can require confirmation, in addition to actions."""


def check_write_options(toolset: "ModelToolset") -> None:
    """Check the options for writing.

    Raises:
        DeclarationError: the first problem found.
    """
    where, model = toolset.source, toolset.model
    form: Any = toolset.form
    if form is not None:
        if not (isinstance(form, type) and issubclass(form, BaseModelForm)):
            raise DeclarationError(f"{where}: form is {form!r}; it must be a ModelForm")
        if form._meta.model not in (None, model):
            raise DeclarationError(f"{where}: {form.__name__} is a form of {form._meta.model._meta.label}")

    if toolset.version_field is not None:
        try:
            concrete = getattr(model._meta.get_field(toolset.version_field), "concrete", False)
        except FieldDoesNotExist:
            concrete = False
        if not concrete:
            raise DeclarationError(
                f"{where}: version_field is {toolset.version_field!r}, which is not a column of the model"
            )

    if toolset.confirm_fallback not in ("refuse", "proceed"):
        raise DeclarationError(f"{where}: confirm_fallback must be 'refuse' or 'proceed'")
    if isinstance(toolset.confirm, str):
        raise DeclarationError(f"{where}: confirm is a list; write confirm = [{toolset.confirm!r}]")


def check_confirm_option(toolset: "ModelToolset") -> None:
    """Check that `confirm` contains only writing tools and actions of the toolset.

    Raises:
        DeclarationError: a name is unknown.
    """
    for name in toolset.confirm:
        if name not in toolset.action_tools and not (name in CONFIRMABLE_TOOLS and name in toolset.tools):
            raise DeclarationError(
                f"{toolset.source}: confirm names {name!r}, which is neither an action nor a writing tool of it"
            )


def bind_inlines(toolset: "ModelToolset") -> "tuple[ModelInline, ...]":
    """Create the inlines of a toolset.

    Raises:
        DeclarationError: an inline is invalid or its name is taken.
    """
    inlines: dict[str, ModelInline] = {}
    for inline_class in toolset.inlines:
        if not (isinstance(inline_class, type) and hasattr(inline_class, "under")):
            raise DeclarationError(
                f"{toolset.source}: inlines lists {inline_class!r}, which is not a ModelInline class"
            )
        inline = inline_class.under(toolset)
        if inline.name in inlines or inline.name == "pk" or toolset.has_field(inline.name):
            raise DeclarationError(
                f"{toolset.source}: the name {inline.name!r} is taken in its rows; give the inline another name"
            )
        inlines[inline.name] = inline
    return tuple(inlines.values())
