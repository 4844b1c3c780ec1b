"""Callers of tasks: loaded from their rows, with the operator who has run a task again.

See `mcp_django.extensions.callers` for the part that other extensions use.
"""

from typing import Any, Final

from mcp_django.contrib.tasks.models import Task
from mcp_django.contrib.tasks.rows import store
from mcp_django.extensions import Call
from mcp_django.extensions.callers import (
    LOCAL,
    CallerGone,
    DjangoPrincipal,
    get_pk,
    has_no_more_rights,
    load_caller,
    to_json_value,
)
from mcp_django.extensions.stored_calls import describe_call

REPEATED_KEY: Final = "repeated"
"""Member of the context of a task that an operator has run again. The operator is its acting user."""
RIGHTS_MESSAGE: Final = "The user who ran this task again has fewer rights than its caller now"


def describe_task_context(call: Call) -> dict[str, Any]:
    """Return the facts of a call that its task stores, as JSON. The user has a column of its own."""
    context = describe_call(call)
    del context["principal"]["user"]
    return {**context, "actor": context["principal"].pop("actor")}


async def load_principal(task: Task) -> DjangoPrincipal:
    """Return the caller of a task, with its users and the scopes of its credential as they are now.

    Raises:
        CallerGone: a user was deleted or deactivated, the credential was revoked, or an operator may not act for it.
        Overloaded: the credential cannot be looked at now.
    """
    context = task.get_context()
    description = {**context["principal"], "user": task.user_id, "actor": context.get("actor")}
    principal = await load_caller(task.server, description, store.run_on_rows)
    if context.get(REPEATED_KEY) and not await store.run_on_rows(
        may_act_for, principal.actor, principal.user, description["kind"]
    ):
        raise CallerGone(RIGHTS_MESSAGE)
    return principal


def may_act_for(operator: Any, user: Any, kind: str) -> bool:
    """Return True if a caller of this kind has no more rights than an operator. Queries the database.

    A caller without a user, and a local one, which may do everything, can be compared with superusers only.
    """
    if operator is None:
        return False
    if user is None or kind == LOCAL:
        return bool(operator.is_active and getattr(operator, "is_superuser", False))
    return user.pk == operator.pk or has_no_more_rights(user, operator)


def repeat_context(context: dict[str, Any], operator: Any) -> dict[str, Any]:
    """Return the context of a task that an operator runs again, who becomes its acting user.

    The client's answers and steps are left out, and so is its progress token, which ended with its request.
    """
    pk = get_pk(operator)
    actor = None if pk is None else to_json_value(pk)
    return {**context, "rounds": {}, "progress_token": None, "actor": actor, REPEATED_KEY: True}
