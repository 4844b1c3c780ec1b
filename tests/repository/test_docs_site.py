"""The site of the documentation, without a network: links, navigation, other hosts, and texts for language models."""

import io
import json
import re
import tarfile
from pathlib import Path

import pytest
from mkdocs.exceptions import PluginError

from scripts.docs_site import unpack_mermaid
from tests.repository.pages import ROOT
from tests.support.docs_site import docs_site

__all__ = ["docs_site"]

LOADED = re.compile(
    r"<(?:script|link|img|iframe|source|object|embed)\b[^>]*\b(?:src|srcset|href|data)=\"?(?:https?:)?//"
)
LOADED_BY_STYLE = re.compile(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//")


def test_pages_load_nothing_from_other_hosts(docs_site: Path) -> None:
    found = [
        path.name
        for path in docs_site.rglob("*")
        if path.suffix in {".html", ".css"}
        if (text := path.read_text(encoding="utf-8")) and (LOADED_BY_STYLE.search(text) or LOADED.search(text))
    ]
    assert found == []
    assert (docs_site / "assets" / "mermaid.min.js").is_file()
    assert (docs_site / "assets" / "search_words.js").is_file()


def test_loading_from_other_hosts_is_noticed(subtests: pytest.Subtests) -> None:
    for text in (
        '<script defer src="https://cdn.example/x.js">',
        "<link rel=stylesheet href=//cdn.example/x.css>",
        '<img alt="x" src="http://cdn.example/x.png">',
    ):
        with subtests.test(text=text):
            assert LOADED.search(text)

    assert LOADED_BY_STYLE.search('@import "https://cdn.example/x.css"')
    assert LOADED_BY_STYLE.search("src: url(//cdn.example/x.woff2)")
    assert not LOADED.search('<a href="https://example.com"><img src="../logo.png"></a>')


def test_each_picture_has_a_dark_form_that_the_theme_shows_in_dark_mode(docs_site: Path) -> None:
    pictures = sorted((ROOT / "docs/pictures").glob("*.webp"))
    light = {path.stem for path in pictures if not path.stem.endswith("-dark")}
    assert {path.stem for path in pictures} == light | {f"{name}-dark" for name in light}

    html = "".join(path.read_text(encoding="utf-8") for path in docs_site.rglob("index.html"))
    shown = re.findall(r'<img [^>]*src="[./]*pictures/([\w-]+)\.webp#only-(light|dark)"', html)
    assert set(shown) == {(name, "light") for name in light} | {(f"{name}-dark", "dark") for name in light}
    assert all((docs_site / "pictures" / path.name).is_file() for path in pictures)


def test_each_page_has_a_markdown_twin_and_a_line_in_llms_txt(docs_site: Path) -> None:
    listed = re.findall(
        r"^- \[[^\]]+\]\(([^)]+\.md)\)", (docs_site / "llms.txt").read_text(encoding="utf-8"), re.MULTILINE
    )
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    full = (docs_site / "llms-full.txt").read_text(encoding="utf-8")

    assert pages <= set(listed)
    for page in listed:
        text = (docs_site / page).read_text(encoding="utf-8")
        assert text.startswith("# "), page
        assert text in full


def test_the_head_of_each_page_links_to_its_twin(docs_site: Path) -> None:
    for path in docs_site.rglob("index.html"):
        (link,) = re.findall(r'<link rel="alternate" type="text/markdown" href="([^"]+)">', path.read_text("utf-8"))
        assert (path.parent / link).resolve().is_file(), path


def test_each_page_has_its_title_in_the_index_of_the_search(docs_site: Path) -> None:
    documents = json.loads((docs_site / "search" / "search_index.json").read_text(encoding="utf-8"))["docs"]
    titled = {document["location"] for document in documents if document["title"]}
    pages = {
        path.relative_to(docs_site).as_posix().removesuffix("index.html") for path in docs_site.rglob("index.html")
    }
    assert pages - titled == {"contributing/questions/"}  # It would be a result of each of its questions.


def test_pages_for_a_task_come_before_the_design_in_the_search(docs_site: Path) -> None:
    documents = json.loads((docs_site / "search" / "search_index.json").read_text(encoding="utf-8"))["docs"]
    boosts = {document["location"]: document.get("boost", 1) for document in documents}
    assert boosts["expose/tools/"] > boosts["reference/settings/"] > boosts["design/threads/"] > boosts["changelog/"]


def test_pages_of_the_root_are_part_of_the_site(docs_site: Path) -> None:
    contributing = (docs_site / "contributing" / "index.html").read_text(encoding="utf-8")
    assert 'href="testing/"' in contributing
    assert "../security" in (docs_site / "protect" / "security" / "index.html").read_text(encoding="utf-8")


def test_each_folder_has_an_index_that_links_to_its_pages() -> None:
    lost = []
    folders = {page.parent for page in (ROOT / "docs").glob("*/*.md")} - {ROOT / "docs/contributing"}
    for folder in sorted(folders):
        text = (folder / "index.md").read_text(encoding="utf-8")
        pages = {page.name for page in folder.glob("*.md")} - {"index.md"}
        linked = set(re.findall(r"\]\(([\w-]+\.md)[#)]", text))
        lost += [f"docs/{folder.name}/index.md needs a link to {name}" for name in sorted(pages - linked)]
    assert lost == []


def test_an_altered_mermaid_is_not_installed() -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo("package/dist/mermaid.min.js"))
    with pytest.raises(PluginError, match="another digest"):
        unpack_mermaid(packed.getvalue(), "x" * 88)
