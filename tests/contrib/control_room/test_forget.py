"""Removal of a user from the records: no value of a removed row leads to the user."""

from datetime import timedelta
from typing import Any

import pytest
from django.apps import apps
from django.core.management import CommandError, call_command
from django.db import models
from django.utils import timezone

from mcp_django.contrib.control_room.models import CallLogEntry, LongCall, ReportedStream, UsageRollup

pytestmark = pytest.mark.django_db

REMOVED = (CallLogEntry, UsageRollup, LongCall, ReportedStream)
"""Models whose rows lose the user."""
NAMING = {
    # These rows exist for the user, or because of its rights. Deleting the user, or the row, ends them.
    *("mcp_django.Session", "mcp_django.ResourceSubscription", "mcp_django.PersonalAccessToken"),
    *("mcp_django.ServiceAccount", "mcp_django.ExternalIdentity", "mcp_django.ClientToken", "mcp_django.ClientFlow"),
    *(
        "mcp_django.OnceResult",
        "mcp_django.StoredPromptVersion",
        "mcp_django.StoredResourceVersion",
        "mcp_memory.Owner",
        "mcp_memory.Conversation",
    ),
    *("mcp_memory.Fact", "mcp_tasks.Task", "mcp_tasks.TaskInput", "mcp_tasks.TaskStep"),
    *("mcp_tasks.TaskAttempt", "mcp_oauth.Consent", "mcp_oauth.TokenFamily", "mcp_oauth.Rotation"),
    *("mcp_oauth.UsedCode", "mcp_oauth.ClientProfile", "mcp_skills.StoredSkillVersion"),
}
"""Models that name users or their calls, without being records of calls."""
WITHOUT_USERS = {
    *("mcp_django.ClientHealth", "mcp_django.StreamEvent", "mcp_django.EventSequence", "mcp_django.SpentState"),
    *(
        "mcp_django.StoredState",
        "mcp_django.SessionCount",
        "mcp_django.StoredPrompt",
        "mcp_django.StoredResource",
        "mcp_django.StoredMessage",
        "mcp_django.StoredArgument",
    ),
    *("mcp_django.ToolPolicy", "mcp_django.ScopeGrant", "mcp_tasks.TaskWorker", "mcp_tasks.OwnerLock"),
    "mcp_control_room.CallRollup",
    *("mcp_control_room.ServerRollup", "mcp_control_room.ServingProcess", "mcp_control_room.ChainHead"),
    *("mcp_control_room.Alert", "mcp_skills.StoredSkill", "mcp_skills.StoredSkillFile"),
}
SHARED_COLUMNS = {
    *("server", "method", "name", "outcome", "process", "revision", "transport", "lists", "waits_for"),
    *("error_code", "milliseconds", "milliseconds_sum", "round", "waited_milliseconds", "request_bytes"),
    *("response_bytes", "count", "failed", "progress", "progress_total", "resources", "others"),
    *("at", "start", "started", "cancelled", "ended"),
}
"""Columns that stay: values that calls of many users share, and measurements."""
OWN_COLUMNS = {"id", "key", "seal", "actor_key"}
"""Columns with values of one row: keys, the seal, and the user who acted, which is another one."""


def fill(model: type[models.Model], number: int) -> Any:
    """Return a row of user 7 whose texts, except for the primary key, are equal in all models."""
    values: dict[str, Any] = {}
    for field in model._meta.concrete_fields:
        if field.primary_key:
            if isinstance(field, models.CharField):
                values[field.name] = f"key {number}"
        elif isinstance(field, models.DateTimeField):
            values[field.name] = timezone.now() + timedelta(seconds=number)
        elif isinstance(field, models.CharField | models.TextField):
            values[field.name] = "" if field.name in ("seal", "actor_key") else f"{field.name} 7"[: field.max_length]
        else:
            values[field.name] = number
    return model(**{**values, "user_key": "7", "principal": "django|7|cli"})


@pytest.mark.parametrize("model", REMOVED)
def test_no_value_of_a_removed_row_is_in_a_later_row_of_the_user(model: type[models.Model]) -> None:
    fill(model, 1).save(force_insert=True)
    call_command("mcp_forget", "7", verbosity=0)
    [removed] = model._default_manager.values()
    for other in REMOVED:
        fill(other, 2).save(force_insert=True)
    later = {
        str(value)
        for other in REMOVED
        for row in other._default_manager.filter(user_key="7").values()
        for value in row.values()
    }
    joining = {
        name
        for name, value in removed.items()
        if name not in SHARED_COLUMNS | OWN_COLUMNS and value not in ("", None) and str(value) in later
    }
    assert joining == set()
    assert removed["principal"].startswith("removed:")
    assert removed["user_key"] == ""


def test_each_model_of_the_package_is_decided() -> None:
    found = {
        model._meta.label
        for model in apps.get_models()
        if model.__module__.startswith("mcp_django.") and not model._meta.proxy
    }
    assert found - NAMING - WITHOUT_USERS == {model._meta.label for model in REMOVED}
    assert (NAMING | WITHOUT_USERS) - found == set()


def test_the_acting_user_is_removed_from_the_calls_of_others() -> None:
    row = fill(CallLogEntry, 1)
    row.actor_key = "9"
    row.save()
    call_command("mcp_forget", "9", verbosity=0)
    row.refresh_from_db()
    assert row.actor_key.startswith("removed:")
    assert (row.user_key, row.session) == ("7", "session 7")


def test_an_empty_name_removes_no_user() -> None:
    row = fill(CallLogEntry, 1)
    row.user_key = ""
    row.save()
    with pytest.raises(CommandError, match="No user"):
        call_command("mcp_forget", "", verbosity=0)
    row.refresh_from_db()
    assert row.principal == "django|7|cli"
