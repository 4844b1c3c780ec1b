"""A look at a page on a phone and a desk, in light and dark: its width, and the rules of axe."""

from collections.abc import Collection
from importlib.resources import files
from typing import Literal

from playwright.sync_api import Page

PHONE_WIDTH, DESK_WIDTH = 390, 1280
Scheme = Literal["light", "dark"]
LOOKS: tuple[tuple[int, Scheme], ...] = (
    (DESK_WIDTH, "light"),
    (PHONE_WIDTH, "light"),
    (PHONE_WIDTH, "dark"),
    (DESK_WIDTH, "dark"),
)
"""The widths and colour schemes of a page."""
OF_DJANGO = {"color-contrast", "link-in-text-block", "target-size"}
"""Rules of axe that pages of Django's own admin break."""
OF_SCHEME = {"color-contrast", "link-in-text-block"}
"""Rules of axe that depend on the colour scheme."""
FIND_VIOLATIONS = """async ([part, options]) => {
  document.getAnimations().forEach((it) => it.finish());  // Django's links change their colour slowly.
  const found = await axe.run(part, {resultTypes: ["violations"], preload: false, iframes: false, ...options});
  return found.violations.map((rule) => [rule.id, rule.nodes[0].html]);
}"""
_AXE = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")


def check(page: Page, *, ignored: Collection[str], own: str = "") -> None:
    """Check a page in each width and scheme. `ignored` are the rules of axe that Django's part of the page breaks.

    `own` selects a part of the page with nothing of Django's: on a phone, all rules hold for it, in both schemes.
    """
    for width, scheme in LOOKS:
        set_look(page, width, scheme)
        assert find_overflow(page) <= 0, (width, scheme)
        if (width, scheme) == LOOKS[0]:
            assert find_violations(page, ignored=ignored) == []
        elif own and width == PHONE_WIDTH:
            rules = None if scheme == "light" else OF_SCHEME
            assert find_violations(page, own, rules=rules) == [], scheme
        elif not own and width == PHONE_WIDTH and scheme == "dark" and not set(ignored) >= OF_SCHEME:
            assert find_violations(page, rules=OF_SCHEME - set(ignored)) == [], scheme


def set_look(page: Page, width: int, scheme: Scheme) -> None:
    """Give the window a width and a colour scheme."""
    page.set_viewport_size({"width": width, "height": 844})
    page.emulate_media(color_scheme=scheme)


def find_overflow(page: Page) -> int:
    """Return the number of pixels by which a page is wider than its window."""
    return int(page.evaluate("document.documentElement.scrollWidth - innerWidth"))


def find_violations(
    page: Page, part: str = "html", *, ignored: Collection[str] = (), rules: Collection[str] | None = None
) -> list[list[str]]:
    """Return the rules of axe that a part of a page breaks, and the first element of each.

    `rules` are the ones to check, all without it. Most of the time of a check is spent on reading axe and on contrast:
    a document gets axe once, and ignored rules are not evaluated. Documents of frames are left out.
    """
    if not page.evaluate("'axe' in window"):
        page.evaluate(_AXE)
    options = (
        {"rules": {rule: {"enabled": False} for rule in ignored}}
        if rules is None
        else {"runOnly": {"type": "rule", "values": sorted(rules)}}
    )
    found: list[list[str]] = page.evaluate(FIND_VIOLATIONS, [part, options])
    return found
