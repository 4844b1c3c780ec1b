"""A user without a mouse."""

from typing import Any
from urllib.parse import parse_qsl, urlsplit

from playwright.sync_api import Page

MOST = 60
"""Stops on one page."""
_FOCUSED = """area => {
  const it = document.activeElement, style = getComputedStyle(it), label = it.labels && it.labels[0];
  const box = it.getBoundingClientRect();
  return {
    tag: it.tagName.toLowerCase(), name: it.name || "", value: it.value || "",
    text: ((label || it).innerText || "").trim(),
    ours: it.closest(area) !== null,
    seen: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2 && box.width > 0
      && box.left >= 0 && box.top >= 0 && box.right <= innerWidth + 1 && box.bottom <= innerHeight + 1,
  };
}"""


class Keyboard:
    """Moves by Tab, and sees where the focus is."""

    def __init__(self, page: Page, area: str = "html") -> None:
        """`area` selects the part of the page where the focus must be seen: the part that is not Django's."""
        self.page = page
        self.area = area

    def focused(self) -> dict[str, Any]:
        """Return the focused element."""
        found: dict[str, Any] = self.page.evaluate(_FOCUSED, self.area)
        return found

    def next(self) -> dict[str, Any]:
        """Go on by one. The focus is always to be seen in the area."""
        self.page.keyboard.press("Tab")
        found = self.focused()
        assert found["tag"] == "body" or found["seen"] or not found["ours"], f"the focus cannot be seen on {found}"
        return found

    def to(self, text: str) -> "Keyboard":
        """Move the focus to the element with the text."""
        for _ in range(MOST):
            if self.next()["text"].startswith(text):
                return self
        raise AssertionError(f"there is no way to {text!r} by keyboard")

    def press(self, key: str) -> "Keyboard":
        """Press a key."""
        self.page.keyboard.press(key)
        return self

    def write(self, text: str) -> "Keyboard":
        """Write text."""
        self.page.keyboard.type(text)
        return self

    def leave(self, key: str, to: str) -> dict[str, str]:
        """Press a key, and be sent to an address beginning with `to`. Returns its query."""
        with self.page.expect_request(lambda request: request.url.startswith(to)) as sent:
            self.press(key)
        return dict(parse_qsl(urlsplit(sent.value.url).query))

    def submit(self, key: str = "Enter") -> "Keyboard":
        """Press a key that submits a form, and wait for the page that comes."""
        with self.page.expect_navigation():
            self.press(key)
        return self

    def stops(self) -> list[str]:
        """Return the focusable elements of the page, in order."""
        found = []
        for _ in range(MOST):
            stop = self.next()
            if stop["tag"] == "body":
                return found
            found.append(stop["text"] or stop["name"])
        raise AssertionError("the focus goes round in circles")
