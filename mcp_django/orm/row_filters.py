"""Filters of packages with object permissions, for `OBJECT_PERMISSIONS`.

Each selects in SQL the rows for which `has_perm` returns True with the backend of its package. None of the packages
is required.
"""

import inspect
from collections.abc import Callable, Sequence
from operator import and_, or_, xor
from typing import Any, TypeVar

from django.db.models import Q, QuerySet
from django.utils.module_loading import import_string

from mcp_django.orm.row_permissions import filter_one_by_one
from mcp_django.schema import DeclarationError

P = TypeVar("P")
Rows = QuerySet[Any, Any]
RowCondition = Callable[[Any], Q]
"""Function of a user that returns the condition in SQL that a predicate tests in Python."""
_CONDITION_ATTRIBUTE = "__mcp_condition__"
_OPERATIONS: dict[str, Callable[[Q, Q], Q]] = {"AND": and_, "OR": or_, "XOR": xor}


def filter_by_guardian(user: Any, permission: str, rows: Rows) -> Rows:
    """Return the rows on which a user, or a group of the user, has the permission by django-guardian.

    Permissions on the model do not count, as in `has_perm` with an object.
    """
    get_objects_for_user: Any = import_string("guardian.shortcuts.get_objects_for_user")
    selected: Rows = get_objects_for_user(user, permission, klass=rows, accept_global_perms=False)
    return selected


def filter_by_restrict(user: Any, permission: str, rows: Rows) -> Rows:
    """Return the rows of `restrict(user, action)`, the method of the querysets of NetBox and its plugins.

    Raises:
        DeclarationError: the default manager of the model has no such method.
    """
    restrict: Any = getattr(rows, "restrict", None)
    if restrict is None:
        raise DeclarationError(
            f"{rows.model._meta.label}: its default manager has no restrict(); use RestrictedQuerySet.as_manager()"
        )
    selected: Rows = restrict(user, permission.partition(".")[2].partition("_")[0])
    return selected


def row_condition(condition: RowCondition) -> Callable[[P], P]:
    """Decorate a predicate of django-rules with its condition in SQL, for `filter_by_rules`.

    @row_condition(lambda user: Q(author=user))
    @rules.predicate
    def is_author(user, book):
        return book is not None and book.author == user
    """

    def mark(predicate: P) -> P:
        setattr(predicate, _CONDITION_ATTRIBUTE, condition)
        return predicate

    return mark


def filter_by_rules(user: Any, permission: str, rows: Rows) -> Rows:
    """Return the rows for which the predicate of a permission of django-rules holds.

    Predicates without an object are tested once. Predicates with a `row_condition` are conditions in SQL, also combined
    by `&`, `|`, `^` and `~`. With any other predicate the rows are tested one by one.

    Raises:
        ToolError: there are too many rows to test.
    """
    permissions: Any = import_string("rules.permissions.permissions")
    predicate = permissions.get(permission)
    if predicate is None:
        return rows.none()
    try:
        condition = _build_condition(predicate, user)
    except _NoConditionError:
        return filter_one_by_one(rows, lambda row: bool(predicate.test(user, row)))
    if isinstance(condition, Q):
        return rows.filter(condition)
    return rows if condition else rows.none()


class _NoConditionError(Exception):
    """A predicate cannot be expressed in SQL."""


def _build_condition(predicate: Any, user: Any) -> Q | bool | None:
    """Return the condition of a predicate; None if the predicate abstains.

    Raises:
        _NoConditionError: a predicate of an object has no condition.
    """
    condition: RowCondition | None = getattr(predicate, _CONDITION_ATTRIBUTE, None)
    if condition is not None:
        return condition(user)

    operands = _get_operands(predicate)
    if operands is not None:
        operator, parts = operands
        return _combine(operator, [_build_condition(part, user) for part in parts])

    if predicate.var_args or predicate.num_args > 1:
        raise _NoConditionError
    if predicate.test(user):
        return True
    # `test` returns False also for a predicate that abstains.
    return False if (~predicate).test(user) else None


def _get_operands(predicate: Any) -> tuple[str, list[Any]] | None:
    """Return the operator and the operands of a combined predicate.

    django-rules keeps them in the variables of a function that is named after the operator.
    """
    operator = getattr(predicate.fn, "__name__", "")
    if operator not in ("AND", "OR", "XOR", "INVERT") or not inspect.isfunction(predicate.fn):
        return None
    variables = inspect.getclosurevars(predicate.fn).nonlocals
    names = ("self",) if operator == "INVERT" else ("self", "other")
    return (operator, [variables[name] for name in names]) if set(names) <= set(variables) else None


def _combine(operator: str, parts: Sequence[Q | bool | None]) -> Q | bool | None:
    """Combine conditions as django-rules does: an operand that abstains leaves the other one."""
    if operator == "INVERT":
        return _negate(parts[0])
    first, second = parts
    if first is None or second is None:
        return second if first is None else first
    if isinstance(first, Q) and isinstance(second, Q):
        return _OPERATIONS[operator](first, second)
    constant, other = (second, first) if isinstance(first, Q) else (first, second)
    match operator:
        case "AND":
            return other if constant else False
        case "OR":
            return True if constant else other
    return _negate(other) if constant else other


def _negate(condition: Q | bool | None) -> Q | bool | None:
    if condition is None:
        return None
    return ~condition if isinstance(condition, Q) else not condition
