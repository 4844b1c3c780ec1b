"""A browser without a screen: it follows redirects, logs in, and submits forms."""

from collections.abc import Callable
from html.parser import HTMLParser
from urllib.parse import urljoin, urlsplit

import httpx

from tests.support.waiting import WAIT_SECONDS

REDIRECTS = {301, 302, 303, 307, 308}
MOST = 20
"""Pages and redirects until the browser has to leave the site."""


class Form(HTMLParser):
    """One form of a page, as a browser would submit it."""

    def __init__(self, action: str, method: str) -> None:
        super().__init__()
        self.action, self.method = action, method
        self.fields: list[tuple[str, str]] = []
        """Fields that are sent with each button. A box that is not ticked is not among them."""
        self.boxes: list[tuple[str, str]] = []
        """Checkboxes that can be changed, ticked or not."""
        self.buttons: list[tuple[str, str]] = []
        """Name and value of each button. The name is empty if the button sends nothing."""

    @property
    def names(self) -> set[str]:
        """Return the names of all fields, boxes and buttons."""
        return {name for name, _ in (*self.fields, *self.boxes, *self.buttons)}


class _Forms(HTMLParser):
    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self.found: list[Form] = []
        self._open: Form | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._open = Form(
                urljoin(self._url, attributes.get("action") or self._url), attributes.get("method", "get").lower()
            )
            self.found.append(self._open)
        elif self._open is not None and "disabled" not in attributes:
            _add(self._open, tag, attributes)

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._open = None


def _add(form: Form, tag: str, attributes: dict[str, str]) -> None:
    kind = attributes.get("type", "submit" if tag == "button" else "text").lower()
    pair = (attributes.get("name", ""), attributes.get("value", "on" if kind == "checkbox" else ""))
    if tag == "button" or kind == "submit":
        form.buttons.append(pair)
    elif tag == "input" and kind == "checkbox":
        form.boxes.append(pair)
        if "checked" in attributes:
            form.fields.append(pair)
    elif tag in ("input", "textarea", "select"):
        form.fields.append(pair)


def forms(page: str, url: str) -> list[Form]:
    """Parse the forms of a page."""
    parser = _Forms(url)
    parser.feed(page)
    return parser.found


class Browser:
    """A browser whose user logs in, and allows or denies.

    `unticked` has the values of the boxes to clear on the consent page.
    """

    def __init__(
        self, user: str = "alice", *, password: str = "pw", allow: bool = True, unticked: tuple[str, ...] = ()
    ) -> None:
        self.user, self.password, self.allow, self.unticked = user, password, allow, unticked
        self.pages: list[str] = []
        """The consent pages that were shown."""
        self.opened: list[str] = []
        """The authorization requests."""
        self.address = ""
        """The address outside the site that the browser was redirected to last."""
        self._cookies = httpx.Cookies()

    async def open(self, url: str) -> None:
        """Open a URL, log in and decide, until the site redirects the browser elsewhere.

        Raises AssertionError if a page has no form to submit, or if there are too many pages and redirects.
        """
        self.opened.append(url)
        async with httpx.AsyncClient(cookies=self._cookies, timeout=WAIT_SECONDS) as client:
            self.address = await self._follow(client, url)
            self._cookies = client.cookies

    async def _follow(self, client: httpx.AsyncClient, url: str) -> str:
        answer = await client.get(url)
        for _ in range(MOST):
            if answer.status_code in REDIRECTS:
                address = urljoin(str(answer.request.url), answer.headers["location"])
                if urlsplit(address)[:2] != urlsplit(url)[:2]:
                    return address
                answer = await client.get(address)
            else:
                answer = await self._submit(client, answer)
        raise AssertionError(f"going round in circles at {answer.request.url}")

    async def _submit(self, client: httpx.AsyncClient, answer: httpx.Response) -> httpx.Response:
        url = str(answer.request.url)
        found = forms(answer.text, url) if answer.status_code == 200 else []
        for form in found:
            if "password" in form.names:
                return await self._send(client, form, [("username", self.user), ("password", self.password)], url)
            if "allow" in form.names:
                self.pages.append(answer.text)
                return await self._send(client, form, [_pressed(form, allow=self.allow)], url)
        raise AssertionError(f"{url} answered {answer.status_code}: {answer.text[:2000]}")

    async def _send(
        self, client: httpx.AsyncClient, form: Form, more: list[tuple[str, str]], referer: str
    ) -> httpx.Response:
        given = {name for name, _ in more}
        sent = [pair for pair in form.fields if pair[0] not in given and pair[1] not in self.unticked] + more
        data: dict[str, list[str]] = {}
        for name, value in sent:
            if name:
                data.setdefault(name, []).append(value)
        headers = {"Referer": referer, "Origin": "{}://{}".format(*urlsplit(referer)[:2])}
        return await client.post(form.action, data=data, headers=headers)


def _pressed(form: Form, *, allow: bool) -> tuple[str, str]:
    """Return the button that allows, or the one that denies."""
    wanted: Callable[[tuple[str, str]], bool] = (
        (lambda button: button[0] == "allow" and button[1] not in ("", "false", "False", "0"))
        if allow
        else (lambda button: button[0] != "allow" or button[1] in ("", "false", "False", "0"))
    )
    return next(button for button in form.buttons if wanted(button))
