"""`TreeToolset`: tools for the rows of a tree of django-treebeard."""

import copy
from typing import Any, Literal

from django import forms
from django.db import models
from django.db.models.functions import Length, Substr

from mcp_django.orm.actions import action
from mcp_django.orm.declaration.exposed_fields import find_field, get_tree_columns
from mcp_django.orm.declaration.writable_form import FormClass
from mcp_django.orm.row_permissions import Rows
from mcp_django.orm.rows.lookup import build_not_found, parse_key
from mcp_django.orm.toolset import ModelToolset
from mcp_django.protocol.errors import ToolError
from mcp_django.schema import DeclarationError
from mcp_django.server.context.context import Context

Key = int | str
Position = Literal["first-child", "last-child", "left", "right"]
PARENT_ATTRIBUTE = "tree_parent_pk"
"""Attribute of rows with the primary key of their parent, if the caller may see it."""


class TreeToolset(ModelToolset):
    """Tools for the rows of a materialized path or nested sets tree (`MP_Node`, `NS_Node`).

    `create` takes the `parent` of the new row, and adds a root without it. `update` with a `parent` moves the row below
    it, after the rows that are there. The action `move` puts a row and all rows below it beside or below another row.
    `delete` refuses a row with rows below it. The entry "parent" in `fields` shows the key of the row above.

    A parent must be a row that the caller may see, so `get_queryset` decides about places of the tree, too.
    """

    def __init__(self) -> None:
        super().__init__()
        self._has_parent_keys = True
        if not get_tree_columns(self.model):
            raise DeclarationError(
                f"{self.source}: {self.model._meta.label} is not a tree of treebeard (MP_Node, NS_Node); "
                "use ModelToolset"
            )
        if find_field(self.model, "parent") is not None:
            raise DeclarationError(f"{self.source}: {self.model._meta.label} has a field 'parent' of its own")
        self.form = _build_tree_form(self.model, type(self).form)  # type: ignore[misc]

    def parent(self, obj: Any, ctx: Context) -> Key | None:
        """Primary key of the row above; null for a root, and for a row whose parent is hidden."""
        if not hasattr(obj, PARENT_ATTRIBUTE):  # a row that was just written
            obj = self.get_queryset(ctx).get(pk=obj.pk)
        key = getattr(obj, PARENT_ATTRIBUTE)
        return key if key is None or type(key) is int else str(key)

    def get_queryset(self, ctx: Context) -> Rows:
        """See BaseModelToolset; each row has the key of its parent, if the caller may see the parent."""
        rows = super().get_queryset(ctx)
        if not self._has_parent_keys or not self.has_field("parent"):
            return rows
        # Subclasses restrict rows further, and parents must obey them, too.
        plain = copy.copy(self)
        plain._has_parent_keys = False
        visible_rows = plain.get_queryset(ctx).using(rows.db).order_by()
        parents = _select_parents(visible_rows, self.model).values("pk")[:1]
        annotated: Rows = rows.annotate(**{PARENT_ATTRIBUTE: models.Subquery(parents)})
        return annotated

    def save_model(self, ctx: Context, obj: Any, form: Any, change: bool) -> None:
        """Save a validated row at its place in the tree."""
        key = form.cleaned_data.get("parent")
        parent = None if key is None or key == "" else self._find_row(ctx, key)
        if change:
            super().save_model(ctx, obj, form, change)
            if parent is not None and not obj.is_child_of(parent):
                self._move(obj, parent, "last-child")
        elif parent is None:
            self.model.add_root(instance=obj)  # type: ignore[attr-defined]
        else:
            parent.add_child(instance=obj)

    def delete_model(self, ctx: Context, obj: Any) -> None:
        """Delete a row without rows below it.

        Raises:
            ToolError: rows are below it.
        """
        if not obj.is_leaf():
            raise ToolError(f"This {self.model._meta.verbose_name} has others below it. Move or delete them first")
        super().delete_model(ctx, obj)

    @action(title="Move", destructive=False, dry_run=True)
    def move(self, ctx: Context, obj: Any, target: Key | None = None, position: Position = "last-child") -> None:
        """Move a row with everything below it.

        Args:
            target: Primary key of the row to move to; null for a new root, after the others.
            position: Below the target, as its first or last child, or beside it, to its left or right.
        """
        if target is not None:
            self._move(obj, self._find_row(ctx, target), position)
        else:
            self._move(obj, self.model.get_last_root_node(), "right")  # type: ignore[attr-defined]

    def _find_row(self, ctx: Context, key: Key) -> Any:
        """Return a row that the caller may see.

        Raises:
            NotFound: no visible row has this key.
        """
        row = self.get_queryset(ctx).filter(pk=parse_key(self, key)).first()
        if row is None or not self.has_view_permission(ctx, row):
            raise build_not_found(self, key)
        return row

    def _move(self, obj: Any, target: Any, position: Position) -> None:
        if target == obj or target.is_descendant_of(obj):
            raise ToolError(f"A {self.model._meta.verbose_name} cannot be moved to itself or below itself")
        place: str = position
        if obj.node_order_by:
            place = "sorted-child" if position in ("first-child", "last-child") else "sorted-sibling"
        obj.move(target, place)
        obj.refresh_from_db(fields=sorted(get_tree_columns(self.model)))


def _select_parents(rows: Rows, model: Any) -> Rows:
    """Return the row above the row of an outer query, in a tree of either kind."""
    if "path" in get_tree_columns(model):
        length = Length(models.OuterRef("path")) - model.steplen
        return rows.filter(path=Substr(models.OuterRef("path"), 1, length))
    return rows.filter(
        tree_id=models.OuterRef("tree_id"), lft__lt=models.OuterRef("lft"), rgt__gt=models.OuterRef("rgt")
    ).order_by("-lft")


def _build_tree_form(model: type[models.Model], base: "FormClass | None") -> FormClass:
    """Return a form with the field `parent`."""
    is_number = isinstance(model._meta.pk, models.IntegerField)
    text = "Primary key of the row above. Without it, a new row is a root, and an existing one stays at its place."
    field: forms.Field = (forms.IntegerField if is_number else forms.CharField)(
        label="parent", required=False, help_text=text
    )
    return type("TreeForm", (base or forms.ModelForm,), {"parent": field})
