"""Contrast of the colours of the pages (WCAG 2.2, 1.4.3 and 1.4.11)."""

import re
from pathlib import Path

import pytest

import mcp_django

STYLE = Path(mcp_django.__file__).with_name("static") / "mcp_django" / "pages.css"
TEXT = [("ink", "paper"), ("ink", "card"), ("ink", "tint"), ("ink", "field"), ("soft", "paper"), ("soft", "card")]
TEXT += [("soft", "tint"), ("accent", "card"), ("accent", "tint"), ("accent", "paper"), ("accent-ink", "accent")]
TEXT += [
    ("accent-ink", "accent-hover"),
    ("good", "good-tint"),
    ("warm", "warm-tint"),
    ("bad", "bad-tint"),
    ("bad", "card"),
]
EDGES = [("edge", "card"), ("edge", "field"), ("accent", "card"), ("accent", "paper")]


def palettes() -> dict[str, dict[str, str]]:
    """The named colours, by day and by night."""
    light, dark = (block for block in re.findall(r":root \{(.*?)\}", STYLE.read_text(), re.DOTALL))
    read = [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{3,6})", block)) for block in (light, dark)]
    return {"light": read[0], "dark": read[1]}


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(digit * 2 for digit in colour[1:])
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_text_contrasts_with_its_background(subtests: pytest.Subtests) -> None:
    for scheme in ("light", "dark"):
        with subtests.test(scheme=scheme):
            colours = palettes()[scheme]
            weak = {pair: contrast(colours[pair[0]], colours[pair[1]]) for pair in TEXT}
            assert {pair: found for pair, found in weak.items() if found < 4.5} == {}


def test_edges_and_the_focus_contrast_with_their_surroundings(subtests: pytest.Subtests) -> None:
    for scheme in ("light", "dark"):
        with subtests.test(scheme=scheme):
            colours = palettes()[scheme]
            weak = {pair: contrast(colours[pair[0]], colours[pair[1]]) for pair in EDGES}
            assert {pair: found for pair, found in weak.items() if found < 3} == {}
