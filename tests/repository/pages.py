"""The pages of the repository, and the Python examples in them."""

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from mcp_django.notifications import model_signals
from mcp_django.server.primitives import registry

ROOT = Path(__file__).resolve().parent.parent.parent
FENCE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
FENCE_OF_ANY_LANGUAGE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def tracked_files() -> list[Path]:
    """List the files that are in the repository, or would be after `git add`."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listing.returncode:
        pytest.skip("not a git checkout")
    return [path for name in listing.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def pages() -> list[Path]:
    """List the pages that users read."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("benchmarks/*.md"))]


def name_of(path: Path) -> str:
    """Name a file by its path in the repository."""
    return path.relative_to(ROOT).as_posix()


def python_blocks(path: Path) -> list[str]:
    """List the Python examples of a page."""
    return FENCE.findall(path.read_text(encoding="utf-8"))


def served_by(block: str, monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, registry.Registry]:
    """Run an example as an app's `mcp_tools` module; return the module, and the registry that it filled."""
    monkeypatch.setattr(registry, "REGISTRIES", {})
    # An example that is tied to a model would hear of its changes in every later test.
    monkeypatch.setattr(model_signals._ModelChangePublisher, "connect", lambda self: None)
    import_shop(monkeypatch)
    module = ModuleType("example.mcp_tools")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(block, module.__name__, "exec"), module.__dict__)
    return module, registry.get_registry("default")


def import_shop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let examples import the models of the shop, an app of the tests."""
    for name in ("shop", "shop.models"):
        monkeypatch.setitem(sys.modules, name, import_module(f"tests.{name}"))
