"""Metrics in OpenMetrics format: numbers, format, and access."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import include, path
from django.utils import timezone
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from mcp_django import conf
from mcp_django.contrib.control_room.metric_families import read_families
from mcp_django.contrib.control_room.models import Alert, Period
from mcp_django.contrib.control_room.openmetrics import CONTENT_TYPE, MetricFamily, iter_lines
from mcp_django.contrib.control_room.options import get_metrics_settings
from tests.contrib.control_room.test_alerts import make_long_call, make_process
from tests.contrib.control_room.test_rows import make_rollup

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 5, 3, 10, 20, 30, tzinfo=UTC)
MIDNIGHT = NOW.replace(hour=0, minute=0, second=0)
TOKEN = "swordfish-swordfish-swordfish"
URL = "/mcp/metrics"


def read_samples(text: str) -> dict[tuple[str, ...], float]:
    """The samples by name and label values, as Prometheus reads them."""
    return {
        (sample.name, *(f"{name}={value}" for name, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def read_metrics(now: datetime = NOW) -> dict[tuple[str, ...], float]:
    return read_samples("".join(iter_lines(read_families(now))))


def test_calls_are_counted_since_midnight_from_hours_and_later_minutes() -> None:
    make_rollup(MIDNIGHT - timedelta(minutes=1), count=1000)
    make_rollup(MIDNIGHT, count=100, period=Period.HOUR, process="")
    make_rollup(MIDNIGHT, count=100)
    make_rollup(MIDNIGHT + timedelta(hours=1), count=20)
    make_rollup(NOW.replace(second=0), count=3, process="b")
    make_rollup(NOW.replace(second=0), count=4, outcome="bug")
    found = read_metrics()
    labels = ("method=tools/call", "name=greet")
    assert found["mcp_calls_total", *labels, "outcome=ok", "server=default"] == 123
    assert found["mcp_calls_total", *labels, "outcome=bug", "server=default"] == 4
    assert found["mcp_calls_created", *labels, "outcome=ok", "server=default"] == MIDNIGHT.timestamp()
    duration = "mcp_call_duration_seconds"
    assert found[f"{duration}_count", *labels, "server=default"] == 127
    assert found[f"{duration}_sum", *labels, "server=default"] == pytest.approx(0.254)
    buckets = {key: value for key, value in found.items() if key[0] == f"{duration}_bucket"}
    # All of them are in the fourth bucket of the rows: 0.5 ms to 0.71 ms.
    assert buckets[f"{duration}_bucket", "le=0.0005", *labels, "server=default"] == 0
    assert buckets[f"{duration}_bucket", "le=0.001", *labels, "server=default"] == 127
    assert len(buckets) == 21


def test_processes_running_calls_and_alerts_are_gauges() -> None:
    make_process("web:1", running=3, busy_threads=2, queued=1, dropped=5)
    make_long_call(key="1", started=NOW - timedelta(seconds=40))
    Alert.objects.create(rule="bugs", subject='default: "quoted\\name"\n', is_active=True, since=NOW, checked=NOW)
    Alert.objects.create(rule="slow", subject="default: greet", since=NOW, checked=NOW)
    found = read_metrics()
    process = "process=web:1"
    assert found["mcp_running_calls", process] == 3
    assert found["mcp_busy_threads", process] == 2
    assert found["mcp_max_threads", process] == 4
    assert found["mcp_queued_calls", process] == 1
    assert found["mcp_dropped_records_total", process] == 5
    assert found["mcp_process_last_report_timestamp_seconds", process] == NOW.timestamp()
    assert found["mcp_oldest_call_seconds",] == 40
    alerts = [key for key in found if key[0] == "mcp_alert_active"]
    assert alerts == [("mcp_alert_active", "rule=bugs", 'subject=default: "quoted\\name"\n')]


def test_without_calls_the_text_is_valid() -> None:
    assert read_metrics() == {("mcp_oldest_call_seconds",): 0.0}


def test_a_name_that_the_format_forbids_is_refused() -> None:
    family = MetricFamily("mcp-calls", "gauge", "x")
    with pytest.raises(ValueError, match="mcp-calls"):
        list(iter_lines([family]))


@pytest.fixture
def change(settings: Any) -> Callable[..., None]:
    urls = ModuleType("tests_metrics_urls")
    urls.urlpatterns = [path("", include("mcp_django.contrib.control_room.urls"))]  # type: ignore[attr-defined]
    settings.ROOT_URLCONF = urls

    def change(**options: Any) -> None:
        settings.MCP = {"AUTH": "none", "METRICS": options}

    return change


def test_the_view_is_off_by_default(client: Client, change: Callable[..., None]) -> None:
    change()
    assert client.get(URL).status_code == 404
    change(TOKEN=TOKEN)
    assert client.get(URL, headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 404


def test_the_view_requires_the_token(client: Client, change: Callable[..., None]) -> None:
    change(ENABLED=True, TOKEN=TOKEN)
    make_rollup(timezone.now().replace(second=0, microsecond=0), count=7)
    for authorization in ("", f"Bearer {TOKEN}x", f"Basic {TOKEN}", "Bearer", TOKEN, "Bearer \N{SNOWMAN}"):
        refused = client.get(URL, headers={"Authorization": authorization})
        assert (refused.status_code, refused["WWW-Authenticate"]) == (401, "Bearer")
        assert b"greet" not in refused.content
    answer = client.get(URL, headers={"Authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 200
    assert answer["Content-Type"] == CONTENT_TYPE
    assert "no-store" in answer["Cache-Control"]
    assert 7 in read_samples(answer.content.decode()).values()
    assert client.post(URL, headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 405


def test_without_a_token_only_permitted_staff_get_in(client: Client, change: Callable[..., None]) -> None:
    change(ENABLED=True)
    assert client.get(URL, headers={"Authorization": "Bearer "}).status_code == 401
    user = User.objects.create_user("ada", is_staff=True)
    client.force_login(user)
    assert client.get(URL).status_code == 401
    user.user_permissions.add(Permission.objects.get(codename="view_controlroom"))
    assert client.get(URL).status_code == 200
    User.objects.update(is_staff=False)
    assert client.get(URL).status_code == 401


def test_the_token_is_long_enough_and_never_shown(change: Callable[..., None]) -> None:
    change(ENABLED=True, TOKEN=TOKEN)
    assert TOKEN not in repr(get_metrics_settings())
    change(ENABLED=True, TOKEN="swordfish")
    (problem,) = [str(problem) for problem in conf.get_problems() if "METRICS" in str(problem)]
    assert "swordfish" not in problem
