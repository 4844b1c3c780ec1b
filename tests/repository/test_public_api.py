"""The names of `import mcp_django`: few, documented and typed, and usable without a configured Django."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import mcp_django

PACKAGE = Path(mcp_django.__file__).parent


def _run(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter that knows of no settings."""
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=PACKAGE.parent,
        env={"PYTHONPATH": str(PACKAGE.parent)},
        capture_output=True,
        text=True,
        timeout=240,
    )


def _is_ours(value: object) -> bool:
    return not isinstance(value, ModuleType) and str(getattr(value, "__module__", "")).startswith("mcp_django")


def test_all_is_sorted_and_has_every_public_name() -> None:
    assert list(mcp_django.__all__) == sorted(set(mcp_django.__all__))

    public = {n for n in dir(mcp_django) if not n.startswith("_") and _is_ours(getattr(mcp_django, n))}
    assert public <= set(mcp_django.__all__)

    listed = dir(mcp_django)
    missing = [name for name in mcp_django.__all__ if name not in listed or getattr(mcp_django, name) is None]
    assert not missing


def test_public_names_have_docstrings_of_their_own() -> None:
    wrong = []
    for name in mcp_django.__all__:
        value = getattr(mcp_django, name)
        text = value.__doc__ or ""
        if not text.strip():
            wrong.append(f"{name} has no docstring")
        elif inspect.isclass(value):
            if text.startswith(f"{value.__name__}("):
                wrong.append(f"{name} has the signature that a dataclass makes up")
            if text in [base.__doc__ for base in value.__mro__[1:]]:
                wrong.append(f"{name} has the docstring of a base class")
    assert not wrong, "\n".join(wrong)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = mcp_django.no_such_name  # type: ignore[attr-defined]


def test_importing_and_declaring_need_no_settings() -> None:
    ran = _run(
        "import mcp_django, sys\n"
        "assert 'django.conf' not in sys.modules, 'it imported django.conf'\n"
        "from mcp_django import tool\n"
        "@tool\ndef double(number: int) -> int:\n    return 2 * number\n"
    )
    assert ran.returncode == 0, ran.stderr


def test_the_package_is_marked_as_typed() -> None:
    assert (PACKAGE / "py.typed").is_file()


def test_modules_have_docstrings() -> None:
    missing = []
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if tree.body and "migrations" not in path.parts and not ast.get_docstring(tree):
            missing.append(path.relative_to(PACKAGE).as_posix())
    assert not missing, "\n".join(missing)
