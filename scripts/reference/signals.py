"""The reference of the signals, from the docstrings in their module."""

import importlib
from typing import Final

from django.dispatch import Signal

from scripts.reference.sources import MARK, describe_module, write_docstring

PATH: Final = "signals.md"
INTRODUCTION: Final = f"""\
# Signals

{MARK}

Connect a receiver in `AppConfig.ready()`. Import each signal from `mcp_django.signals`.
[Observability](../run/observability.md) and [sessions](../run/sessions.md) have examples.
"""


def list_signals() -> dict[str, str]:
    """Map the signals of the package to their docstrings."""
    module = importlib.import_module("mcp_django.signals")
    found = describe_module("mcp_django.signals")
    return {name: text for name, text in found.items() if isinstance(getattr(module, name), Signal)}


def render_signals() -> str:
    """Return the page."""
    signals = list_signals()
    module = importlib.import_module("mcp_django.signals")
    lines = [INTRODUCTION, *write_docstring(module.__doc__).splitlines()[2:], "", "| Signal | Sent when |", "|---|---|"]
    for name, text in signals.items():
        purpose = text.split("\n")[0].removeprefix("Signal that ").rstrip(".")
        lines.append(f"| [`{name}`](#{name}) | {purpose} |")
    lines.append("")

    for name, text in signals.items():
        lines += [f"## {name}", "", *write_docstring(text).splitlines(), ""]
    return "\n".join(lines).rstrip() + "\n"
