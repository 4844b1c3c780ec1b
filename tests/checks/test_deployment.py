"""Messages for projects with common mistakes, and none for sound ones."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.checks import run_checks
from django.core.checks.registry import registry as checks
from django.test import override_settings

from mcp_django.server.primitives import registry

ROOT = Path(__file__).resolve().parent.parent.parent
COMPLAINT = re.compile(r"\(mcp_django\.(\w+)\) (.+)")
OURS = [check for check in checks.get_checks(True) if check.__module__.startswith("mcp_django.")]
LAYER = "channels.layers.InMemoryChannelLayer"
REDIS, PUBSUB = "channels_redis.core.RedisChannelLayer", "channels_redis.pubsub.RedisPubSubChannelLayer"
SQLITE = {"ENGINE": "django.db.backends.sqlite3", "NAME": "db.sqlite3"}
CAREFUL = {"transaction_mode": "immediate", "init_command": "PRAGMA synchronous=NORMAL; pragma journal_mode = 'WAL'"}
POSTGRES = {"ENGINE": "django.db.backends.postgresql", "NAME": "shop"}


def run_check(settings: str, *arguments: str, **environment: str) -> dict[str, str]:
    """Run `manage.py check`. Return its messages by id."""
    found = subprocess.run(
        [sys.executable, "manage.py", "check", *arguments],
        cwd=ROOT,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": settings, **environment},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert "Traceback" not in found.stderr, found.stderr
    assert "System check identified" in found.stdout + found.stderr
    return dict(COMPLAINT.findall(found.stderr + found.stdout))


@pytest.mark.integration
def test_each_common_mistake_of_a_project_is_reported(tmp_path: Path) -> None:
    for name, version in (("mcp_django", "0.14.0"), ("asgiref", "3.8.1")):
        directory = tmp_path / f"{name}-{version}.dist-info"
        directory.mkdir()
        (directory / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    found = run_check("tests.mistakes.settings", "--deploy", PYTHONPATH=path)
    words = {
        "E001": "mcp-django is installed beside",
        "E002": 'MCP["LIMTIS"]',
        "E004": "'search'",
        "E005": "asgiref 3.8.1",
        "E006": "'stuff'",
        "E007": "tests.mistakes.middleware.Missing",
        "W003": "in memory",
        "W004": 'DATABASES["default"]',
        "W005": 'DATABASES["reports"]["CONN_MAX_AGE"]',
        "W006": 'DATABASES["archive"]["OPTIONS"]["pool"] has at most 4 connections',
        "W007": "'o/'",
        "W008": "/mcp/mcp",
        "W021": "http://pages.example",
        "W022": "DNS rebinding",
        "W023": "in memory",
        "W024": 'MCP["TOKEN_CACHE"]',
        "W025": "is 300",
        "I002": "tests.mistakes.middleware.Stopwatch",
    }
    assert found.keys() == words.keys()
    assert [id for id, word in words.items() if word not in found[id]] == []


@pytest.mark.integration
def test_required_decisions_of_a_new_project_are_reported() -> None:
    assert run_check("tests.mistakes.untouched").keys() == {"W001"}
    assert run_check("tests.mistakes.untouched", "--deploy").keys() == {"W001", "W003", "W004"}


@pytest.mark.integration
def test_every_invalid_value_is_reported_although_the_urls_need_it(tmp_path: Path) -> None:
    lines = 'from tests.mistakes.untouched import *\nMCP = {"LIMITS": {"THREADS": "x", "BODDY": 1000}}\n'
    (tmp_path / "wrong.py").write_text(lines)
    found = run_check("wrong", PYTHONPATH=os.pathsep.join([str(tmp_path), str(ROOT)]))
    assert found.keys() == {"E002", "E003"}
    assert 'MCP["LIMITS"]["THREADS"] must be' in found["E003"]


@pytest.mark.integration
def test_a_message_is_silenced_by_its_id(tmp_path: Path) -> None:
    lines = 'from tests.mistakes.untouched import *\nSILENCED_SYSTEM_CHECKS = ["mcp_django.W001"]\n'
    (tmp_path / "silent.py").write_text(lines)
    assert run_check("silent", PYTHONPATH=os.pathsep.join([str(tmp_path), str(ROOT)])) == {}


@pytest.mark.integration
def test_the_demo_has_only_the_warning_about_one_process(tmp_path: Path) -> None:
    place = {"DEMO_DIR": str(tmp_path)}
    assert run_check("project.settings", **place) == {}
    assert run_check("project.settings", "--deploy", DJANGO_DEBUG="0", **place).keys() == {"W003"}
    served = {"REDIS_URL": "redis://127.0.0.1:6379/0", "DATABASE_URL": "postgres://shop@127.0.0.1/shop", **place}
    assert run_check("project.settings", "--deploy", DJANGO_DEBUG="0", **served) == {}


@pytest.fixture(autouse=True)
def nothing_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests declare things for servers of their own."""
    monkeypatch.setattr(registry, "REGISTRIES", {"default": registry.Registry("default")})
    monkeypatch.setattr(registry, "MARKED_METHODS", registry.MarkedMethods())


SOUND: dict[str, Any] = {
    "MCP": {"AUTH": "token"},
    "CHANNEL_LAYERS": {"default": {"BACKEND": PUBSUB}},
    "DATABASES": {"default": {**POSTGRES, "OPTIONS": {"pool": {"max_size": 20}}}},
    # The toolkit, whose own checks look for its models wherever it was imported.
    "INSTALLED_APPS": ["django.contrib.auth", "django.contrib.contenttypes", "oauth2_provider", "mcp_django"],
    "MIDDLEWARE": ["django.middleware.common.CommonMiddleware"],
    "ROOT_URLCONF": "tests.mistakes.corrected_urls",
}
LOCAL = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
DUMMY = {"default": {"BACKEND": "django.core.cache.backends.dummy.DummyCache"}}
SHARED = {"default": {"BACKEND": "django.core.cache.backends.db.DatabaseCache", "LOCATION": "cache"}}
SYNC = "tests.mistakes.middleware.Stopwatch"
VERIFIER = "tests.interaction.verifiers.Tokens"


@pytest.fixture
def ids(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Return the ids of the messages of `check --deploy` for sound settings with changes."""

    def ids(**changes: Any) -> list[str]:
        wanted = {**SOUND, **changes}
        # Overriding DATABASES by signal would warn that connections do not follow, which no check opens.
        monkeypatch.setattr(settings, "DATABASES", wanted.pop("DATABASES"))
        with override_settings(**wanted):
            found = run_checks(include_deployment_checks=True)
        mine = (str(message.id) for message in found if str(message.id).startswith("mcp_django."))
        return sorted(id.removeprefix("mcp_django.") for id in mine)

    return ids


def sqlite(**options: Any) -> dict[str, Any]:
    return {"default": {**SQLITE, "OPTIONS": options}}


def pool(**options: Any) -> dict[str, Any]:
    return {"default": {**POSTGRES, "OPTIONS": options}}


@pytest.mark.django_db
def served(**options: Any) -> dict[str, Any]:
    """Settings with a server of these options."""
    return {"MCP": {"AUTH": "token", "SERVERS": {"default": options}}}


def test_unsound_deployments_are_reported(ids: Callable[..., list[str]], subtests: pytest.Subtests) -> None:
    cases = (
        ({}, []),
        ({"MCP": {"AUTH": VERIFIER}}, []),
        ({"CHANNEL_LAYERS": {}}, ["W003"]),
        ({"CHANNEL_LAYERS": {"other": {"BACKEND": PUBSUB}}}, ["W003"]),
        ({"CHANNEL_LAYERS": {"default": {"BACKEND": LAYER}}}, ["W003"]),
        ({"CHANNEL_LAYERS": {"default": {"BACKEND": REDIS}}}, ["I001"]),
        ({"CHANNEL_LAYERS": {"default": {"BACKEND": "shop.layers.Carrier"}}}, []),
        ({"MCP": {"AUTH": "token", "CHANNEL_LAYER": None}, "CHANNEL_LAYERS": {}}, []),
        ({"MCP": {"AUTH": "token", "CHANNEL_LAYER": "mcp"}, "CHANNEL_LAYERS": {"mcp": {"BACKEND": LAYER}}}, ["W003"]),
        ({"MCP": {"AUTH": "token", "CHANNEL_LAYER": "mcp"}}, ["E008"]),
        ({"DATABASES": sqlite()}, ["W004"]),
        ({"DATABASES": sqlite(transaction_mode="IMMEDIATE")}, ["W004"]),
        ({"DATABASES": sqlite(init_command=CAREFUL["init_command"])}, ["W004"]),
        ({"DATABASES": sqlite(transaction_mode="DEFERRED", init_command="PRAGMA journal_mode=DELETE")}, ["W004"]),
        ({"DATABASES": sqlite(**CAREFUL)}, []),
        ({"DATABASES": {"default": {**SQLITE, "NAME": ":memory:"}}}, []),
        ({"DATABASES": {"default": {**SQLITE, "NAME": "file:x?mode=memory&cache=shared"}}}, []),
        ({"DATABASES": {"default": {**SQLITE, "TEST": {"NAME": "db.sqlite3"}}}}, []),
        ({"DATABASES": {"default": {**POSTGRES, "CONN_MAX_AGE": 60}}}, []),
        ({"DATABASES": {"default": {**POSTGRES, "CONN_MAX_AGE": 60}}, "ASGI_APPLICATION": "shop.asgi.app"}, ["W005"]),
        ({"DATABASES": {"default": {**POSTGRES, "CONN_MAX_AGE": None}}, "ASGI_APPLICATION": "shop.asgi.app"}, ["W005"]),
        ({"DATABASES": {"default": {**POSTGRES, "CONN_MAX_AGE": 0}}, "ASGI_APPLICATION": "shop.asgi.app"}, []),
        ({"DATABASES": pool(pool=True)}, ["W006"]),
        ({"DATABASES": pool(pool={"min_size": 2, "max_size": 15})}, ["W006"]),
        ({"DATABASES": pool(pool={"max_size": 17})}, ["W006"]),
        ({"DATABASES": pool(pool={"min_size": 18})}, []),
        ({"DATABASES": pool(pool={"max_size": 18})}, []),
        ({"DATABASES": pool(pool=True), "MCP": {"AUTH": "token", "LIMITS": {"THREADS": 2}}}, []),
        ({"DATABASES": pool(pool=False)}, []),
        ({"ROOT_URLCONF": "tests.mistakes.wrong_urls"}, ["W008"]),
        ({"ROOT_URLCONF": "tests.mistakes.wrong_urls", "MCP": {"AUTH": VERIFIER}}, ["W007", "W008"]),
        ({"DEBUG": True, "MCP": {}}, ["W020"]),
        ({"DEBUG": True, "MCP": {"EXPOSE_INTERNAL_ERRORS": True}}, ["W020", "W020"]),
        ({"DEBUG": True}, []),
        ({"MCP": {"AUTH": "token", "ORIGIN": "http://example.com"}}, ["W021"]),
        ({"MCP": {"AUTH": "token", "ORIGIN": "https://example.com"}}, []),
        ({"MCP": {"AUTH": "token", "ORIGIN": "http://localhost:8000"}}, []),
        ({"MCP": {"AUTH": "token", "ALLOWED_ORIGINS": ["http://a.example", "https://a.example"]}}, ["W021"]),
        ({"MCP": {"AUTH": "token", "CORS_ALLOWED_ORIGINS": ["http://127.0.0.1:3000", "http://*.b.example"]}}, ["W021"]),
        (served(RESOURCE="http://a.example/mcp"), ["W021"]),
        (served(AUTHORIZATION_SERVERS=["http://a.example", "https://b.example"]), ["W021"]),
        (served(RESOURCE_METADATA_URL="http://localhost/x"), []),
        ({"ALLOWED_HOSTS": ["example.com", "*"]}, ["W022"]),
        ({"CACHES": LOCAL}, []),
        ({"CACHES": LOCAL, "MCP": {"AUTH": "token", "RATES": {"TOKEN_FAILURES": "5/m"}}}, ["W023"]),
        ({"CACHES": DUMMY, "MCP": {"AUTH": "token", "RATES": {"TOKEN_FAILURES": "5/m"}}}, ["W023"]),
        ({"CACHES": SHARED, "MCP": {"AUTH": "token", "RATES": {"TOKEN_FAILURES": "5/m"}}}, []),
        ({"CACHES": LOCAL, "MCP": {"AUTH": "token", "TOKEN_CACHE": "default"}}, ["W024"]),
        ({"CACHES": SHARED, "MCP": {"AUTH": "token", "TOKEN_CACHE": "default"}}, []),
        ({"MCP": {"AUTH": "token", "TOKEN_CACHE_SECONDS": 11}}, []),
        ({"MCP": {"AUTH": "token", "TOKEN_CACHE_SECONDS": 60}}, ["W025"]),
        ({"SECURE_PROXY_SSL_HEADER": ("HTTP_X_FORWARDED_PROTO", "https")}, ["W026"]),
        ({"USE_X_FORWARDED_HOST": True, "CACHES": SHARED, "MCP": {"AUTH": "token", "RATES": {"NUM_PROXIES": 1}}}, []),
        ({"MIDDLEWARE": [SYNC]}, []),
        ({"MIDDLEWARE": [SYNC], "ASGI_APPLICATION": "shop.asgi.app"}, ["I002"]),
        ({"MIDDLEWARE": [SYNC, "shop.nothing.Here"], "ASGI_APPLICATION": "shop.asgi.app"}, ["I002"]),
        ({"MIDDLEWARE": [SYNC], "ASGI_APPLICATION": "shop.asgi.app", "ROOT_URLCONF": "django.contrib.auth.urls"}, []),
    )
    for changes, expected in cases:
        with subtests.test(changes=changes, expected=expected):
            assert ids(**changes) == expected


@pytest.mark.django_db
def test_checks_survive_settings_that_are_broken(subtests: pytest.Subtests) -> None:
    cases = (
        {"DATABASES": 7},
        {"DATABASES": {"default": None, "other": {"ENGINE": None, "OPTIONS": 7, "CONN_MAX_AGE": "x"}}},
        {"DATABASES": {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": None, "OPTIONS": {"pool": 3}}}},
        {"DATABASES": {"default": {**POSTGRES, "OPTIONS": {"pool": {"max_size": "many"}}}}},
        {"CHANNEL_LAYERS": 7},
        {"CHANNEL_LAYERS": {"default": None}},
        {"MIDDLEWARE": 7},
        {"MIDDLEWARE": [7, None, "", "x.y"]},
        {"ROOT_URLCONF": "tests.nothing.urls", "MCP": {"AUTH": VERIFIER}},
        {"ROOT_URLCONF": None},
        {"MCP": 7},
        {"MCP": {"LIMITS": {"THREADS": "x"}, "SERVERS": 3, "AUTH": 3}},
    )
    for broken in cases:
        with subtests.test(broken=broken), pytest.MonkeyPatch.context() as monkeypatch:
            wanted = {**SOUND, "ASGI_APPLICATION": "shop.asgi.app", **broken}
            monkeypatch.setattr(settings, "DATABASES", wanted.pop("DATABASES"))
            with override_settings(**wanted):
                for check in OURS:
                    check(None)


@pytest.mark.django_db
def test_checks_make_no_queries(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        for check in OURS:
            check(None)
