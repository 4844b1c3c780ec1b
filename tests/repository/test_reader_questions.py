"""The questions of readers: thirty of them, each with one page and one heading that answer it."""

import re
from pathlib import Path

from markdown.extensions.toc import slugify

from tests.repository.pages import FENCE_OF_ANY_LANGUAGE, ROOT

PAGE = ROOT / "docs" / "contributing" / "questions.md"
QUESTION = re.compile(r"^(\d+)\. (.+?\?) \[[^\]]+\]\(([^)#]+)(?:#([^)]+))?\)$", re.MULTILINE)
COUNT = 30


def headings(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as the site makes them."""
    text = FENCE_OF_ANY_LANGUAGE.sub("", page.read_text(encoding="utf-8"))
    explicit = set(re.findall(r"\{[^}\n]*#([\w-]+)[^}\n]*\}", text))
    titles = re.findall(r"(?m)^#+ (.+)$", text)
    return explicit | {slugify(re.sub(r"[`*]|\{.*\}", "", title), "-") for title in titles}


def test_there_are_thirty_numbered_questions() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [int(number) for number, *_ in QUESTION.findall(text)] == list(range(1, COUNT + 1))
    assert len(re.findall(r"(?m)^\d+\. ", text)) == COUNT


def test_each_question_has_a_page_and_a_heading() -> None:
    lost = []
    for number, question, link, anchor in QUESTION.findall(PAGE.read_text(encoding="utf-8")):
        target = (PAGE.parent / link).resolve()
        if not target.is_file():
            lost.append(f"{number}. {question} there is no page {link}")
        elif anchor and anchor not in headings(target):
            lost.append(f"{number}. {question} {link} has no heading #{anchor}")
    assert lost == []


def test_anchors_are_those_of_the_site(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Who may do `this`\n\n```\n# code\n```\n\n## At 2 o'clock {#two}\n", encoding="utf-8")
    assert headings(page) == {"who-may-do-this", "at-2-oclock", "two"}
