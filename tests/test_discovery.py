import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.apps import apps
from django.test import override_settings

from mcp_django.server.primitives import registry


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An installed app in a folder of its own."""
    package = tmp_path / "discovered_shop"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    yield package
    for name in [name for name in sys.modules if name.startswith("discovered_shop")]:
        del sys.modules[name]


@contextmanager
def install() -> Iterator[None]:
    """The app, before anything of it is discovered."""
    names = [*(config.name for config in apps.get_app_configs()), "discovered_shop"]
    # Two steps: the apps are loaded before the other settings of the same override count.
    with override_settings(MCP={"AUTODISCOVER_MODULES": []}), override_settings(INSTALLED_APPS=names):
        yield


def autodiscover(*names: str) -> None:
    """Start the app of the package once more."""
    with override_settings(MCP={"AUTODISCOVER_MODULES": names or ["mcp_tools"]}):
        apps.get_app_config("mcp_django").ready()


def test_the_tools_of_an_installed_app_are_imported(shop: Path) -> None:
    (shop / "mcp_tools.py").touch()
    with install():
        assert "discovered_shop.mcp_tools" not in sys.modules
        autodiscover()
        assert "discovered_shop.mcp_tools" in sys.modules


def test_starting_django_discovers_the_modules_of_the_setting(shop: Path) -> None:
    (shop / "assistants.py").touch()
    with install():
        autodiscover("assistants")
        assert "discovered_shop.assistants" in sys.modules


def test_several_module_names_are_discovered(shop: Path) -> None:
    (shop / "one.py").touch()
    (shop / "two.py").touch()
    with install():
        autodiscover("one", "two")
        assert {"discovered_shop.one", "discovered_shop.two"} <= sys.modules.keys()


def test_apps_without_tools_and_modules_called_mcp_are_skipped(shop: Path) -> None:
    with install():
        autodiscover()

    (shop / "mcp.py").write_text("raise RuntimeError('not ours to import')")
    with install():
        autodiscover()


def test_an_error_in_a_module_is_not_swallowed(shop: Path, subtests: pytest.Subtests) -> None:
    for source, error in (
        ("import a_module_nobody_has", ModuleNotFoundError),
        ("raise ValueError('no')", ValueError),
        ("(", SyntaxError),
    ):
        with subtests.test(source=source, error=error):
            (shop / "mcp_tools.py").write_text(source)
            with install(), pytest.raises(error):
                autodiscover()


def test_declarations_that_are_not_served_are_logged_at_start(
    shop: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(registry, "REGISTRIES", {})
    monkeypatch.setattr(registry.MARKED_METHODS, "_unclaimed", {})
    (shop / "mcp_tools.py").write_text(
        "from mcp_django import tool\n"
        "@tool\ndef unserializable(order: object()): ...\n"
        "@tool(server='stuff')\ndef elsewhere() -> str: ...\n"
        "class NoToolset:\n    @tool\n    def method(self) -> str: ...\n"
    )
    with install(), override_settings(SILENCED_SYSTEM_CHECKS=[]):
        autodiscover()
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == 3
    assert "unserializable" in errors[0]
    assert "NoToolset.method" in errors[1]
    assert "'stuff'" in errors[2]
