"""The comparison in docs/start/is-it-for-me.md: each cell names its check, and those of this package hold."""

import re

from tests.coming_from.test_table import COMMENT, check
from tests.repository.pages import ROOT

PAGE = ROOT / "docs" / "start" / "is-it-for-me.md"
COLUMNS = ["", "this", "django-mcp-server", "django-stateless-mcp", "bolt-mcp", "FastMCP", "SDK"]
UNCHECKED = {"Version", "Python, at least"}


def rows() -> list[tuple[list[str], list[str]]]:
    """Return the cells of each row of the large table, and its checks."""
    found = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in COMMENT.sub("", line).split("|")[1:-1]]
        if len(cells) == len(COLUMNS) and set(line) - set("|- "):
            found.append((cells, [one.strip() for text in COMMENT.findall(line) for one in text.split(";")]))
    return found


def test_cells_about_other_packages_name_their_check() -> None:
    heading, *table = rows()
    assert heading[0] == COLUMNS
    unnamed = [
        (cells[0], cell)
        for cells, _ in table
        if cells[0] not in UNCHECKED
        for cell in cells[2:]
        if not re.search(r"\([rcd]\)$", cell)
    ]
    assert unnamed == []
    assert len(table) > 20


def test_cells_about_this_package_hold() -> None:
    own = {cells[0]: (cells[1], checks) for cells, checks in rows()[1:]}
    assert all(
        cell == "no" or cell.endswith("(r)")
        for name, (cell, _) in own.items()
        if name not in UNCHECKED | {"Installs and starts alone"}
    )
    checked = [line for _, checks in own.values() for line in checks]
    for line in checked:
        check(line)
    assert len(checked) > 15


def test_versions_are_those_of_the_pages_about_other_packages() -> None:
    versions = dict(zip(COLUMNS, next(cells for cells, _ in rows() if cells[0] == "Version"), strict=True))
    pages = {"FastMCP": "fastmcp", "SDK": "python-sdk"}
    for column in COLUMNS[2:]:
        page = ROOT / "docs" / "coming-from" / f"{pages.get(column, column)}.md"
        assert versions[column] in page.read_text(encoding="utf-8"), column
