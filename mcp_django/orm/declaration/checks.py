"""Checks of a toolset's declaration, run when it is registered."""

from collections.abc import Sequence
from typing import Any

from django.core.exceptions import FieldDoesNotExist
from django.db import models
from django.db.models.constants import LOOKUP_SEP
from django.forms.models import BaseModelForm

from mcp_django.orm.declaration.base import FORM_SUFFIX, TOOL_ACTIONS, BaseModelToolset
from mcp_django.orm.declaration.computed_fields import compile_computed_field
from mcp_django.orm.declaration.exposed_fields import (
    find_field,
    find_last_field,
    find_relation,
    get_tree_columns,
    parse_search_field,
)
from mcp_django.orm.declaration.names import is_secret_column, is_secret_name
from mcp_django.schema import DeclarationError
from mcp_django.server.callables import is_async
from mcp_django.server.primitives.base import STRICT

_QUERY_HOOKS = ("get_queryset", "get_ordering", "get_search_results")
_HOOKS = frozenset((*_QUERY_HOOKS, "get_form_class", "save_model", "delete_model", "db_for_write", "log_write"))
_LIST_ATTRIBUTES = (
    "fields",
    "readonly_fields",
    "sensitive_fields",
    "search_fields",
    "list_filter",
    "ordering",
    "tools",
)


def check_declaration(toolset: BaseModelToolset) -> None:
    """Check the parts of a declaration that do not depend on other toolsets.

    Raises:
        DeclarationError: the first problem found.
    """
    where = toolset.source
    _check_lists(toolset)
    _check_model(toolset)
    _check_hooks(toolset)

    names = toolset.field_names()
    _check_key(toolset, toolset.model, toolset.model._meta.pk.name)
    for name in names:
        _check_name(toolset, name)
    for kind in ("readonly_fields", "sensitive_fields"):
        for name in getattr(toolset, kind):
            if name not in names:
                raise DeclarationError(f"{where}: {kind} names {name!r}, which fields does not show")

    _check_conditions(toolset, names)
    _check_order_and_label(toolset, names)
    unknown = [name for name in toolset.tools if name not in TOOL_ACTIONS]
    if unknown:
        raise DeclarationError(f"{where}: unknown tool {unknown[0]!r} in tools; choose from {', '.join(TOOL_ACTIONS)}")
    _check_app(toolset)
    _check_limits(toolset)


def _check_lists(toolset: BaseModelToolset) -> None:
    where = toolset.source
    for name in _LIST_ATTRIBUTES:
        value = getattr(toolset, name)
        if isinstance(value, str) and not (value == "__all__" and name in ("fields", "list_filter")):
            raise DeclarationError(f"{where}: {name} is a list; write {name} = [{value!r}]")

    if not toolset.fields:
        raise DeclarationError(f"{where}: fields is empty; name the fields that clients may see")
    if toolset.fields == "__all__" and toolset.exclude is None:
        raise DeclarationError(
            f'{where}: fields = "__all__" requires exclude, the list of hidden fields ([] for none); '
            "fields added to the model later are shown automatically"
        )


def _check_model(toolset: BaseModelToolset) -> None:
    where, model = toolset.source, toolset.model
    if model._meta.abstract:
        raise DeclarationError(f"{where}: {model._meta.label} is abstract and has no rows")
    if len(getattr(model._meta, "pk_fields", ())) > 1:
        raise DeclarationError(
            f"{where}: {model._meta.label} has a primary key of several columns, which is not supported"
        )
    for name in toolset.exclude or ():
        if find_field(model, name) is None:
            raise DeclarationError(f"{where}: exclude names {name!r}, which {model._meta.label} does not have")


def _check_hooks(toolset: BaseModelToolset) -> None:
    """Check that all hooks are plain functions.

    An unawaited coroutine is truthy, so an async permission hook would grant every permission.
    """
    kind = type(toolset)
    for name in dir(kind):
        is_hook = name in _HOOKS or (name.startswith("has_") and name.endswith("_permission"))
        if is_hook and is_async(getattr(kind, name)):
            raise DeclarationError(f"{toolset.source}: {name} is called as a plain function; write it with def")


def _check_name(toolset: BaseModelToolset, name: object) -> None:
    where = toolset.source
    if not isinstance(name, str):
        raise DeclarationError(f"{where}: fields names {name!r}, which is not a string")

    if name == "pk":
        raise DeclarationError(f"{where}: 'pk' is shown with every row; take it out of fields")

    if name not in toolset.sensitive_fields and is_secret_column(name, _find_column(toolset, name)):
        raise DeclarationError(
            f"{where}: {name!r} looks like a secret. Take it out of fields (or into exclude); to show it to clients "
            "and their models, name it in sensitive_fields as well"
        )

    if _is_path(toolset, name):
        _check_path(toolset, name)
    elif toolset.find_own_method(name) is not None or find_field(toolset.model, name) is None:
        compile_computed_field(toolset.source, toolset.model, name, toolset.find_own_method(name))
    elif (relation := find_relation(toolset.model, name)) is not None:
        _check_key(toolset, relation.related_model, name)


def _find_column(toolset: BaseModelToolset, name: str) -> Any:
    """Return Django's field of a name or a path; None if its value is computed."""
    if toolset.find_own_method(name) is not None or (LOOKUP_SEP in name and hasattr(toolset.model, name)):
        return None
    return find_last_field(toolset.model, name)


def _check_key(toolset: BaseModelToolset, model: type[models.Model], name: str) -> None:
    """Check that an exposed primary key is not a secret.

    Rows and references are identified by primary keys. Some keys are credentials, such as the key of a session.
    """
    key = model._meta.pk.name
    if is_secret_name(key) and name not in toolset.sensitive_fields:
        raise DeclarationError(
            f"{toolset.source}: {name!r} shows the primary key of {model._meta.label}, {key!r}, which looks like a "
            "secret. To show it to clients and their models, name it in fields and in sensitive_fields"
        )


def _check_conditions(toolset: BaseModelToolset, field_names: Sequence[str]) -> None:
    filters = () if toolset.list_filter == "__all__" else toolset.list_filter
    searched = [parse_search_field(name)[1] for name in toolset.search_fields]
    named = [("list_filter", name) for name in filters] + [("search_fields", name) for name in searched]

    for kind, name in named:
        if name in toolset.sensitive_fields:
            raise DeclarationError(f"{toolset.source}: {kind} names {name!r}, which is sensitive: shown only")
        if name in field_names or name == "pk":
            continue
        first = name.partition(LOOKUP_SEP)[0]
        if first == name or first not in field_names:
            raise DeclarationError(
                f"{toolset.source}: {kind} names {name!r}, but fields shows neither it nor the relation it begins "
                "with; filters and searches would reveal its values"
            )
        if is_secret_column(name, find_last_field(toolset.model, name)):
            raise DeclarationError(f"{toolset.source}: {kind} names {name!r}, which looks like a secret")
        _check_path(toolset, name)


def _check_order_and_label(toolset: BaseModelToolset, field_names: Sequence[str]) -> None:
    filters = () if toolset.list_filter == "__all__" else toolset.list_filter
    for name in toolset.ordering:
        ordering_name = str(name).removeprefix("-")
        if ordering_name != "pk" and ordering_name not in field_names and ordering_name not in filters:
            raise DeclarationError(f"{toolset.source}: ordering names {name!r}, which fields does not show")

    label = toolset.label_field
    if label is not None and label not in field_names:
        raise DeclarationError(f"{toolset.source}: label_field is {label!r}, which fields does not show")
    if label in toolset.sensitive_fields:
        raise DeclarationError(
            f"{toolset.source}: label_field is {label!r}, which is sensitive: shown with its own row only"
        )


def _check_path(toolset: BaseModelToolset, path: str) -> None:
    model: Any = toolset.model
    *relations, last = path.split(LOOKUP_SEP)
    for name in relations:
        relation = find_relation(model, name)
        if relation is None:
            raise DeclarationError(f"{toolset.source}: in {path!r}, {model._meta.label} has no relation {name!r}")
        model = relation.related_model
    if find_field(model, last) is None:
        raise DeclarationError(f"{toolset.source}: in {path!r}, {model._meta.label} has no field {last!r}")


def _check_app(toolset: BaseModelToolset) -> None:
    """Check the options of apps: their pages call the tools of the model."""
    where, app = toolset.source, toolset.app
    if type(app) is not bool:
        raise DeclarationError(f"{where}: app = {app!r} is invalid; give True or False")
    if app and toolset.is_generic:
        raise DeclarationError(f"{where}: app = True shows tools of one model; it requires ORM_STYLE = 'per_model'")
    if app and "describe" not in toolset.tools:
        raise DeclarationError(f"{where}: app = True requires the tool 'describe' in tools, which its pages call")
    for name in toolset.tools:
        if name.endswith(FORM_SUFFIX) and (verb := name.removesuffix(FORM_SUFFIX)) not in toolset.tools:
            raise DeclarationError(f"{where}: the tool {name!r} requires {verb!r} in tools, which saves its values")


def _check_limits(toolset: BaseModelToolset) -> None:
    for name in ("page_size", "max_limit"):
        value: Any = getattr(toolset, name)
        if type(value) is not int or value < 1:
            raise DeclarationError(f"{toolset.source}: {name} = {value!r} is invalid; give an integer above 0")
    if toolset.page_size > toolset.max_limit:
        raise DeclarationError(f"{toolset.source}: page_size is larger than max_limit")

    timeout: Any = toolset.query_timeout
    if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, int | float) or timeout <= 0):
        raise DeclarationError(
            f"{toolset.source}: query_timeout = {timeout!r} is invalid; give a number of seconds above 0"
        )


def _is_path(toolset: BaseModelToolset, name: str) -> bool:
    """Return True if the name crosses a relation.

    Names of methods and model attributes may also contain two underscores.
    """
    return LOOKUP_SEP in name and toolset.find_own_method(name) is None and not hasattr(toolset.model, name)


def check_write_options(toolset: BaseModelToolset) -> None:
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

    _check_tree(toolset, where)
    _check_confirmation(toolset, where)


def _check_tree(toolset: BaseModelToolset, where: str) -> None:
    """Check that rows of a tree are added and deleted by methods that keep the tree consistent."""
    if not get_tree_columns(toolset.model):
        return
    for tool, hook in (("create", "save_model"), ("delete", "delete_model")):
        if tool in toolset.tools and not toolset.is_overridden(hook):
            raise DeclarationError(
                f"{where}: the tool {tool!r} would corrupt the tree of {toolset.model._meta.label}, which treebeard "
                f"keeps; extend mcp_django.orm.TreeToolset, or override {hook}"
            )


def _check_confirmation(toolset: BaseModelToolset, where: str) -> None:
    if toolset.confirm_fallback not in ("refuse", "proceed"):
        raise DeclarationError(f"{where}: confirm_fallback must be 'refuse' or 'proceed'")
    if isinstance(toolset.confirm, str):
        raise DeclarationError(f"{where}: confirm is a list; write confirm = [{toolset.confirm!r}]")
    for name in toolset.confirm:
        if toolset.get_confirmation(name) not in (True, STRICT):
            raise DeclarationError(f"{where}: confirm of {name!r} must be True or {STRICT!r}")
        if toolset.get_confirmation(name) == STRICT and toolset.confirm_fallback != "refuse":
            raise DeclarationError(f"{where}: strict confirmation of {name!r} contradicts confirm_fallback='proceed'")
