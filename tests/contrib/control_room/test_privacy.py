"""Secrets of calls and names of removed users: no table, page, export, log, mail, metric or span shows them.

The pages come from the URLs of the admin, and the tables from the database, so new ones are searched as well.
"""

import logging
from collections.abc import Callable, Iterator
from io import StringIO
from types import ModuleType
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.contrib.auth.models import Permission, User
from django.core import mail
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.urls import include, path, reverse
from django.utils import timezone
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from mcp_django import Context, Server
from mcp_django.auth.principal import PROJECT_ISSUER, DjangoPrincipal
from mcp_django.contrib.control_room.alerts.evaluation import AlertEvaluator
from mcp_django.contrib.control_room.alerts.options import get_alert_settings
from mcp_django.contrib.control_room.models import CallLogEntry, CallRollup, LongCall
from mcp_django.contrib.control_room.recording import process_reports
from mcp_django.contrib.control_room.recording.maintenance import remove_deleted_users
from mcp_django.contrib.control_room.recording.process_reports import ProcessReporter
from mcp_django.contrib.control_room.recording.recorder import CallRecorder
from mcp_django.observability import Call, current_call
from mcp_django.protocol.errors import MCPError
from mcp_django.server.calls.call import NetworkInfo
from tests.contrib.control_room.conftest import ALIAS
from tests.server.client import HANDSHAKE, STATELESS, PipelineClient
from tests.support.admin_pages import iter_admin_paths
from tests.support.telemetry import spans

__all__ = ["spans"]
pytestmark = pytest.mark.django_db
CANARY = "swordfish"
"""Value and name of arguments, and text of an error."""
CLIENT = "client-of-ada"
NAME_CANARY = "cuttlefish"
"""Unknown name of a tool, prompt, resource or method. Logs and spans show it, because operators search for it."""
ADDRESS = "192.0.2.77"
URLS = ("tests.urls", "mcp_django.contrib.control_room.urls")
TABLE_PREFIX = "mcp_control_room_"
METRICS_TOKEN = "a-token-of-a-scraper-in-a-test"


@pytest.fixture
def options(change: Callable[..., None], settings: Any, recorder: CallRecorder) -> Callable[..., None]:
    """Set options of the recorder, with metrics and an alert for each tool that fails."""

    def set_options(**record: Any) -> None:
        change(**record)
        urls = ModuleType("tests_privacy_urls")
        urls.urlpatterns = [path("", include(module)) for module in URLS]  # type: ignore[attr-defined]
        settings.ROOT_URLCONF = urls
        settings.DEFAULT_FROM_EMAIL = settings.SERVER_EMAIL = "mcp@example.com"
        settings.MCP = settings.MCP | {
            "ALERTS": {"MAIL": ["boss@example.com"], "MIN_CALLS": 1, "LIMITS": {"errors": 0, "oldest_call": 1}},
            "METRICS": {"ENABLED": True, "TOKEN": METRICS_TOKEN},
            "PLAYGROUND": {"ENABLED": True},
        }
        recorder.queue.forget_settings()

    set_options()
    return set_options


async def send_secrets(server: Server, user: User) -> None:
    """Send a secret in each place where a client may put one, in both eras. The last call reports itself as long."""

    @server.tool
    async def report(secret: str, ctx: Context) -> str:
        await ctx.report_progress(1, 2, message=secret)
        await sync_to_async(report_call)(current_call())
        return secret

    for version in (HANDSHAKE, STATELESS):
        client = PipelineClient(
            server, DjangoPrincipal(issuer=PROJECT_ISSUER, subject=str(user.pk), client_id=CLIENT, user=user), version
        )
        for method, params in (
            ("tools/call", {"name": "fail", "arguments": {"secret": CANARY, "country": "Chad"}}),
            ("tools/call", {"name": "greet", "arguments": {"name": CANARY}}),
            ("tools/call", {"name": "greet", "arguments": {CANARY: CANARY}}),
            ("tools/call", {"name": NAME_CANARY, "arguments": {CANARY: CANARY}}),
            ("prompts/get", {"name": NAME_CANARY, "arguments": {"a": CANARY}}),
            ("resources/read", {"uri": f"notes://{NAME_CANARY}?{CANARY}"}),
            ("resources/read", {"uri": f"{NAME_CANARY}://{CANARY}@host"}),
            ("completion/complete", {"ref": {"type": "ref/prompt", "name": NAME_CANARY}, "argument": {"name": CANARY}}),
            (f"no/{NAME_CANARY}", {}),
        ):
            try:
                await client.request(method, params)
            except MCPError:
                pass

    params = {"name": "report", "arguments": {"secret": CANARY}, "_meta": {"progressToken": 1}}
    await client.request("tools/call", params)


class RunningTask:
    """As much of the task of a call as its report reads."""

    def __init__(self, call: Call | None) -> None:
        self.call = call


def report_call(call: Call | None) -> None:
    """Write the row of a running call."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process_reports, "MIN_AGE_SECONDS", 0)
        patch.setattr(process_reports, "_find_running_calls", lambda: [RunningTask(call)])
        ProcessReporter("web-1").report(0)


def dump_tables(prefix: str = "") -> str:
    """Return the values of all tables whose names start with a prefix."""
    with connection.cursor() as cursor:
        names = [name for name in connection.introspection.table_names(cursor) if name.startswith(prefix)]
        rows = []
        for name in names:
            cursor.execute(f"SELECT * FROM {connection.ops.quote_name(name)}")
            rows += [f"{name}: {row}" for row in cursor.fetchall()]
    return "\n".join(rows)


def log_in(*, without: str = "") -> Client:
    """Return the browser of a member of staff with all permissions but one."""
    user = User.objects.create_user(f"staff-{without}", is_staff=True)
    user.user_permissions.set(Permission.objects.exclude(codename=without))
    browser = Client()
    browser.force_login(user)
    return browser


def iter_paths(*app_labels: str) -> Iterator[str]:
    """Yield the pages of the admin of some apps, the page of each tool, and the metrics."""
    yield from iter_admin_paths(app_labels, max_rows=2)
    for place in CallRollup.objects.values("server", "method", "name").distinct():
        yield reverse("admin:mcp_control_room_controlroom_target", query=place)
    yield reverse("admin:mcp_django_access_changelist", query={"server": ALIAS, "users": "staff-"})
    yield reverse("mcp_control_room:metrics")


def read_all(browser: Client, *app_labels: str) -> str:
    """Return the pages of the control room and of other apps, and all exports."""
    texts = [browser.get(url).content.decode() for url in iter_paths("mcp_control_room", *app_labels)]
    keys = [str(pk) for pk in CallLogEntry.objects.values_list("pk", flat=True)]
    for action in ("export_csv", "export_jsonl"):
        data = {"action": action, "_selected_action": keys}
        answer: Any = browser.post(reverse("admin:mcp_control_room_calllogentry_changelist"), data)
        texts.append(b"".join(answer.streaming_content).decode())
    return "\n".join(texts)


def read_command(*arguments: str) -> str:
    output = StringIO()
    call_command("mcp_calls", "--since", "2026-01-01", *arguments, stdout=output)
    return output.getvalue()


def test_a_secret_of_a_call_is_nowhere(
    server: Server,
    recorder: CallRecorder,
    options: Callable[..., None],
    spans: InMemorySpanExporter,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    ada = User.objects.create_user("ada")
    async_to_sync(send_secrets)(server, ada)
    assert LongCall.objects.get().progress == 1
    recorder.flush()
    AlertEvaluator(get_alert_settings(), timezone.now()).evaluate()
    pages = read_all(log_in(), "mcp_django")
    mails = "".join(f"{one.subject}{one.body}" for one in mail.outbox)

    assert "(unknown)" in pages
    assert "recorded: fail" in mails
    assert len(spans.get_finished_spans()) >= 18
    assert caplog.messages
    rows = {
        "tables": dump_tables(),
        "pages and exports": pages,
        "command": read_command("--arguments") + read_command("--format", "csv"),
        "mails": mails,
    }
    others = {"spans": "".join(span.to_json() for span in spans.get_finished_spans()), "log": caplog.text}
    assert [place for place, text in {**rows, **others}.items() if CANARY in text] == []
    assert [place for place, text in rows.items() if NAME_CANARY in text] == []


def test_addresses_of_clients_are_never_kept(
    server: Server, recorder: CallRecorder, options: Callable[..., None]
) -> None:
    options(CALLS="all")
    client = PipelineClient(
        server, headers={"X-Forwarded-For": ADDRESS}, network=NetworkInfo("tcp", "http", "1.1", ADDRESS, 5000)
    )
    for name in ("greet", "fail"):
        async_to_sync(client.call)(name)
    recorder.flush()
    assert CallLogEntry.objects.filter(transport="http").count() == 2
    assert ADDRESS not in dump_tables()


def test_only_allowed_arguments_are_kept_and_shown_to_those_who_may_see_them(
    server: Server, recorder: CallRecorder, options: Callable[..., None]
) -> None:
    options(TOOLS={"fail": {"ARGUMENTS": ["country"]}})
    async_to_sync(send_secrets)(server, User.objects.create_user("ada"))
    recorder.flush()
    tables = dump_tables()
    assert CANARY not in tables
    assert tables.count("Chad") == 2
    assert "Chad" in read_all(log_in())
    assert "Chad" not in read_all(log_in(without="view_call_arguments"))


@pytest.mark.parametrize("removal", ["deletion", "late rows", "mcp_forget"])
def test_a_removed_user_leaves_no_name(
    server: Server, recorder: CallRecorder, options: Callable[..., None], removal: str
) -> None:
    options(CALLS="all", TOOLS={"fail": {"ARGUMENTS": ["country"]}})
    names = ("ada-lovelace", "grace-hopper")
    ada, operator = (User.objects.create_superuser(name) for name in names)
    async_to_sync(send_secrets)(server, ada)
    send_in_playground(operator, ada)
    recorder.flush()
    assert CallLogEntry.objects.filter(user_key=ada.pk, actor_key=operator.pk, name="greet").count() == 1
    keys = [f"django|{user.pk}|" for user in (ada, operator)]
    before = dump_tables(TABLE_PREFIX)
    assert all(text in before for text in ("tests 1", CLIENT, "Chad"))

    if removal == "late rows":
        async_to_sync(send_secrets)(server, User.objects.get(pk=ada.pk))
    for user in (ada, operator):
        if removal == "mcp_forget":
            call_command("mcp_forget", user.username, stdout=StringIO())
        else:
            user.delete()
    recorder.flush()
    remove_deleted_users()
    after = dump_tables(TABLE_PREFIX)
    assert [text for text in (*names, *keys, "tests 1", CLIENT, "Chad", "playground") if text in after] == []


def send_in_playground(operator: User, user: User) -> None:
    """Call a tool in the playground, as another user."""
    browser = Client()
    browser.force_login(operator)
    query = {"server": ALIAS, "as": user.username, "name": "greet"}
    url = reverse("admin:mcp_playground_playground_changelist", query=query)
    page = browser.post(url, {"act": "send", "confirmed": "on"})
    assert "hello you" in page.content.decode()
