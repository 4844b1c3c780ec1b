"""Output of the commands: no character deceives the reader of a terminal, and JSON keeps its values."""

import ast
import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import get_commands, load_command_class
from django.core.management.base import CommandError

import mcp_django
from mcp_django.management.output import CleanCommand

PACKAGE = Path(mcp_django.__file__).parent
HOSTILE = "a\x1b[31mb\u202ec\x07\r\nd\u2800\ud800"
CLEAN = "a[31mbc\nd"


class ExampleCommand(CleanCommand):
    """Command that writes a value in each way that commands have."""

    requires_system_checks = ()

    def handle(self, *args: Any, **options: Any) -> None:
        self.stdout.write(HOSTILE)
        self.stdout.write(HOSTILE, self.style.SUCCESS)
        self.stderr.write(HOSTILE)
        self.write_json({HOSTILE: [HOSTILE, "Zürich", 1]})
        raise CommandError(HOSTILE)


@pytest.fixture
def command() -> ExampleCommand:
    return ExampleCommand(io.StringIO(), io.StringIO(), force_color=True)


def test_text_is_cleaned_before_its_style(command: ExampleCommand) -> None:
    out, err = io.StringIO(), io.StringIO()
    with pytest.raises(CommandError):
        command.execute(stdout=out, stderr=err, no_color=False, force_color=True, verbosity=1, skip_checks=True)
    plain, styled = f"{CLEAN}\n", f"\x1b[32;1m{CLEAN}\x1b[0m\n"
    assert out.getvalue().startswith(plain + styled + "{")
    assert err.getvalue() == plain


def test_the_text_of_an_error_is_cleaned(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        ExampleCommand().run_from_argv(["manage.py", "example"])
    assert capsys.readouterr().err == f"{CLEAN}\nCommandError: {CLEAN}\n"


def test_json_keeps_its_values() -> None:
    out = io.StringIO()
    ExampleCommand(out).write_json({HOSTILE: [HOSTILE, "Zürich", "👩‍🚒", 1]})
    text = out.getvalue()
    assert json.loads(text) == {HOSTILE: [HOSTILE, "Zürich", "👩‍🚒", 1]}
    assert "Zürich" in text
    assert all(character == "\n" or character.isprintable() for character in text)


def test_a_question_is_one_clean_line(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr("builtins.input", lambda text: asked.append(text) or " yes ")
    assert ExampleCommand().ask(f"{HOSTILE}?") == "yes"
    assert asked == ["a[31mbc d? "]


def test_each_command_has_the_clean_output(subtests: pytest.Subtests) -> None:
    commands = {name: app for name, app in get_commands().items() if str(app).startswith("mcp_django")}
    assert "mcp_call" in commands
    for name, app in commands.items():
        with subtests.test(command=name):
            assert isinstance(load_command_class(app, name), CleanCommand)


def test_no_command_bypasses_its_output(subtests: pytest.Subtests) -> None:
    paths = [path for path in PACKAGE.rglob("*.py") if "management" in path.parts and path.name != "output.py"]
    assert paths
    for path in paths:
        with subtests.test(module=path.relative_to(PACKAGE).as_posix()):
            assert [ast.unparse(call) for call in _list_calls(path) if _is_direct(call)] == []


def _list_calls(path: Path) -> list[ast.Call]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def _is_direct(call: ast.Call) -> bool:
    """Return True for functions beside the streams, and for styles within a text, which would be cleaned away."""
    function = ast.unparse(call.func)
    return function in ("input", "print") or function.startswith(("sys.std", "OutputWrapper")) or ".style." in function
