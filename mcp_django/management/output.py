"""Output of the commands: text of visible characters, and JSON with escapes.

The commands show texts of clients, of other servers and of rows. Each command derives from `CleanCommand`, so that no
call of a command has to remember this. Colours are applied after the text is cleaned: pass `style_func` to `write`.
"""

import json
from collections.abc import Callable
from typing import Any

from django.core.management.base import BaseCommand, OutputWrapper

from mcp_django.protocol.display_text import clean_line, clean_text, escape_json


class CleanOutput(OutputWrapper):
    """Stream of a command that writes visible characters only."""

    def write(  # type: ignore[override]  # as Django's class has it
        self, msg: str = "", style_func: Callable[[str], str] | None = None, ending: str | None = None
    ) -> None:
        """Write a text without invisible characters, in a style."""
        ending = self.ending if ending is None else ending
        text = clean_text(str(msg))
        if ending:
            text = text.removesuffix("\n")
        style = style_func or self.style_func
        out: Any = self._out
        out.write(f"{style(text)}{ending}")


class CleanCommand(BaseCommand):
    """Base class of the commands, whose streams and questions have visible characters only."""

    @property
    def stdout(self) -> OutputWrapper:
        """Stream of the result."""
        return self._stdout

    @stdout.setter
    def stdout(self, stream: OutputWrapper) -> None:
        self._stdout = _wrap(stream)

    @property
    def stderr(self) -> OutputWrapper:
        """Stream of everything else, with the text of a CommandError."""
        return self._stderr

    @stderr.setter
    def stderr(self, stream: OutputWrapper) -> None:
        self._stderr = _wrap(stream)

    def write_json(self, value: Any, *, indent: int | None = 2, default: Callable[[Any], Any] | None = None) -> None:
        """Write a value as JSON, with escapes for its invisible characters."""
        self.stdout.write(escape_json(json.dumps(value, indent=indent, ensure_ascii=False, default=default)))

    def ask(self, question: str) -> str:
        """Return the answer of the person at the terminal.

        Raises EOFError at the end of stdin.
        """
        return input(f"{clean_line(question)} ").strip()


def _wrap(stream: Any) -> CleanOutput:
    return stream if isinstance(stream, CleanOutput) else CleanOutput(getattr(stream, "_out", stream))
