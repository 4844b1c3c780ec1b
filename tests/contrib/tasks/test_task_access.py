"""Access to tasks that is taken away: tokens, scopes, and the users who run them again."""

import json
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import Permission, User
from django.test import Client

from mcp_django import Context, wiring
from mcp_django.auth.authentication.verifiers import build_token_principal
from mcp_django.auth.principal import ALL_SCOPES, DjangoPrincipal
from mcp_django.contrib.tasks.attempts.callers import RIGHTS_MESSAGE
from mcp_django.contrib.tasks.attempts.runner import run_attempt
from mcp_django.contrib.tasks.models import Task
from mcp_django.extensions.callers import REVOKED_MESSAGE
from mcp_django.models import PersonalAccessToken
from mcp_django.protocol import jsonrpc
from mcp_django.runtime.calls.observer import add_outcome_recorder, remove_outcome_recorder
from mcp_django.server.calls.call import Call
from mcp_django.types import TaskOptions
from tests.contrib.tasks.clients import TaskClient, make_caller
from tests.contrib.tasks.conftest import ALIAS, Gate, get_url
from tests.server.client import accept

pytestmark = pytest.mark.django_db
WORKER = "mcp_django.contrib.tasks.worker.WorkerBackend"


@pytest.fixture
def queue(gate: Gate, settings: Any) -> None:
    """Tasks wait until the test runs an attempt. Callers have personal tokens."""
    settings.MCP = {**settings.MCP, "AUTH": "token", "TASKS": {"BACKEND": WORKER}}

    @wiring.get_server(ALIAS).tool(task=TaskOptions(grace=0))
    async def ask_for_scopes(ctx: Context) -> str:
        """Ask, and return the scopes."""
        await ctx.elicit("Go on?", bool, key="go")
        return " ".join(sorted(ctx.principal.scopes))


async def issue_token(*scopes: str) -> PersonalAccessToken:
    user = await User.objects.acreate(username="ada")
    return await PersonalAccessToken.objects.acreate(user=user, name="CI", scopes=list(scopes), token_hash="x")


def connect(principal: DjangoPrincipal) -> TaskClient:
    return TaskClient(wiring.get_server(ALIAS), principal=principal)


async def test_a_revoked_token_stops_the_task_that_waits(queue: None, gate: Gate) -> None:
    token = await issue_token()
    client = connect(build_token_principal(token))
    id = (await client.start("wait"))["taskId"]
    await PersonalAccessToken.objects.aupdate(revoked_at=token.created)
    await run_attempt(id)
    assert (await client.get(id))["error"]["message"] == REVOKED_MESSAGE
    assert gate.runs == []


async def test_a_revoked_token_stops_the_attempt_after_an_answer(queue: None, gate: Gate) -> None:
    token = await issue_token()
    client = connect(build_token_principal(token))
    id = (await client.start("confirm", name="x"))["taskId"]
    await run_attempt(id)
    (key,) = (await client.get(id))["inputRequests"]
    await client.update(id, **{key: accept(value=True)})
    await PersonalAccessToken.objects.aupdate(revoked_at=token.created)
    await run_attempt(id)
    assert (await client.get(id))["error"]["message"] == REVOKED_MESSAGE
    assert gate.runs == ["x"]


async def test_lost_scopes_are_lost_in_the_next_attempt(queue: None) -> None:
    token = await issue_token("read", "write")
    client = connect(build_token_principal(token))
    id = (await client.start("ask_for_scopes"))["taskId"]
    await run_attempt(id)
    (key,) = (await client.get(id))["inputRequests"]
    await client.update(id, **{key: accept(value=True)})
    await PersonalAccessToken.objects.aupdate(scopes=["read"])
    await run_attempt(id)
    assert (await client.get(id))["result"]["content"][0]["text"] == "read"


async def test_callers_without_a_client_keep_all_scopes(queue: None) -> None:
    user = await User.objects.acreate(username="ada")
    client = connect(make_caller(user=user, scopes=ALL_SCOPES))
    id = (await client.start("wait"))["taskId"]
    task = await Task.objects.aget(pk=id)
    assert task.get_context()["principal"]["scopes"] is None


# The action "Run again" of the admin


@pytest.fixture
def paid(queue: None) -> Task:
    """The ended task of a call whose user agreed before the task began."""
    user = User.objects.create_user("ada")
    user.user_permissions.add(Permission.objects.get(codename="view_group"))

    async def pay() -> str:
        client = connect(make_caller(user=user))
        return str((await client.start("confirm", name="10"))["taskId"])

    task = Task.objects.get(pk=async_to_sync(pay)())
    agreed = {"answers": {"confirm": ["d", {}]}, "taken": ["confirm"], "once": {"prepare": None}, "flow": "f"}
    task.context = json.dumps({**task.get_context(), "rounds": agreed, "progress_token": 7})
    task.status = "completed"
    task.save()
    return task


def repeat(task: Task, operator: User) -> tuple[int, Task | None]:
    """Run a task again as an operator; return the HTTP status, and the new task."""
    browser = Client()
    browser.force_login(operator)
    status = browser.post(get_url("repeat", task)).status_code
    return status, Task.objects.exclude(pk=task.pk).first()


def create_operator(*codenames: str) -> User:
    operator = User.objects.create_user("grace", is_staff=True)
    operator.user_permissions.set(Permission.objects.filter(codename__in=("view_task", "change_task", *codenames)))
    return operator


def test_an_agreement_is_not_repeated(paid: Task, gate: Gate) -> None:
    _, new = repeat(paid, create_operator("view_group"))
    assert new is not None
    async_to_sync(run_attempt)(new.pk)
    new.refresh_from_db()
    assert (new.status, gate.steps) == ("input_required", ["10"])
    assert new.get_context()["progress_token"] is None


def test_the_repetition_names_both_people(paid: Task) -> None:
    operator = create_operator("view_group")
    found: list[tuple[str, str]] = []

    def record(call: Call, *outcome: Any) -> None:
        principal: Any = call.principal
        found.append((principal.user.username, principal.actor.username))

    _, new = repeat(paid, operator)
    assert new is not None
    add_outcome_recorder(record)
    try:
        async_to_sync(run_attempt)(new.pk)
    finally:
        remove_outcome_recorder(record)
    assert found == [("ada", "grace")]


def test_an_operator_with_fewer_rights_cannot_run_it_again(paid: Task) -> None:
    operator = create_operator()
    assert repeat(paid, operator) == (403, None)
    browser = Client()
    browser.force_login(operator)
    page = browser.get(get_url("change", paid)).content.decode()
    assert get_url("repeat", paid) not in page


def test_an_operator_who_loses_rights_stops_the_attempt(paid: Task, gate: Gate) -> None:
    operator = create_operator("view_group")
    _, new = repeat(paid, operator)
    assert new is not None
    operator.user_permissions.clear()
    async_to_sync(run_attempt)(new.pk)
    new.refresh_from_db()
    assert jsonrpc.loads(new.error)["message"] == RIGHTS_MESSAGE
    assert gate.runs == []


@pytest.mark.parametrize("kind", ["local", "token"])
def test_callers_without_a_user_are_for_superusers(paid: Task, kind: str) -> None:
    context = paid.get_context()
    paid.context = json.dumps({**context, "principal": {**context["principal"], "kind": kind}})
    paid.user = None
    paid.save()
    assert repeat(paid, create_operator("view_group")) == (403, None)
    assert repeat(paid, User.objects.create_superuser("root"))[0] == 302
