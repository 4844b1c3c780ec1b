"""Hooks of MkDocs: pages of the repository's root, a copy of Mermaid, and the texts for language models.

`mkdocs.yml` names this module. The site sends no request to another host: Mermaid is fetched from npm when the site is
built, with its digest checked, and served with the pages (https://squidfunk.github.io/mkdocs-material/reference/diagrams).
"""

import base64
import hashlib
import io
import re
import shutil
import subprocess
import tarfile
import tempfile
import tomllib
from pathlib import Path, PurePosixPath
from posixpath import relpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

ROOT = Path(__file__).resolve().parent.parent
ROOT_PAGES = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing/index.md", "SECURITY.md": "security.md"}
"""Pages of the repository's root, and their places in the site."""
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
TWIN_LINK = '<link rel="alternate" type="text/markdown" href="{}">'
LINK = re.compile(r"(\]\()((?![a-z]+:|#)[^)\s#]+)(#[^)\s]*)?\)")
PICTURE = re.compile(r"(!\[[^\]]*\]\([^)\s]*pictures/[\w-]+)(\.webp)\)")

SEARCH_BOOSTS = {
    "understand/mcp.md": 3.0,
    "changelog.md": 0.1,
    "design/": 0.2,
    "contributing/": 0.2,
    "reference/api/": 0.2,
    "coming-from/": 0.5,
    "reference/": 0.6,
}
"""Weights of pages in the search, by the start of their path: pages for a task come first."""
UNSEARCHED_PAGES = ("contributing/questions.md",)

ASSETS = {"assets/search_words.js": ROOT / "scripts/search_words.js", "assets/site.css": ROOT / "scripts/site.css"}
"""Our own files of the theme, and their sources."""

MERMAID_VERSION = "11.17.2"
MERMAID_PACKAGE = f"mermaid@{MERMAID_VERSION}"
MERMAID_SHA512 = "V6K3C8EBdEsPFZXSKMJe6ppQOENxuHARr9GvHX4hh47lAbhMRD9qf4oEK7LoaRQxULMa80/qt5gHO73aCleBBg=="
"""Digest in the form of npm's `integrity`, base64 of SHA-512."""
MERMAID_MEMBER = "package/dist/mermaid.min.js"
MERMAID_ASSET = "assets/mermaid.min.js"
FETCH_TIMEOUT_SECONDS = 120

_nav: list[Navigation] = []
"""Navigation of the build in progress."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Load Mermaid before the theme's own script, which then fetches none. Print the version below each page."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        config.copyright = f"mcp_django {tomllib.load(file)['project']['version']}"
    config.extra_javascript = [MERMAID_ASSET, *config.extra_javascript]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the repository's root, and the scripts."""
    for source, place in ROOT_PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, place, content=_move_links(text, PurePosixPath(source), place)))
    files.append(File.generated(config, MERMAID_ASSET, content=read_mermaid(ROOT / ".cache")))
    for asset, source_file in ASSETS.items():
        files.append(File.generated(config, asset, content=source_file.read_bytes()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Weight the page for the search, and point links to pages of the repository's root at their places in the site."""
    boost = next((boost for start, boost in SEARCH_BOOSTS.items() if page.file.src_uri.startswith(start)), 1.0)
    page.meta["search"] = {"boost": boost, "exclude": page.file.src_uri in UNSEARCHED_PAGES}
    if page.file.generated_by is not None:
        return markdown
    place = page.file.src_uri
    return _move_links(_add_dark_pictures(markdown), PurePosixPath("docs", place), place)


def _add_dark_pictures(markdown: str) -> str:
    """Add the dark form of each picture beside it; the theme shows the form that fits (`make pictures` takes both)."""
    return PICTURE.sub(r"\1\2#only-light) \1-dark\2#only-dark)", markdown)


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> Navigation:
    """Keep the navigation for `llms.txt`."""
    _nav[:] = [nav]
    return nav


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Link the Markdown twin of a page from its head."""
    twin = TWIN_LINK.format(get_relative_url(page.file.src_uri, page.url))
    return output.replace("</head>", f"{twin}</head>", 1)


def on_post_build(config: MkDocsConfig) -> None:
    """Write the texts for language models (https://llmstxt.org): a Markdown twin of each page, and two files of all.

    `llms.txt` lists the pages, and `llms-full.txt` contains them.
    """
    site = Path(config.site_dir)
    lines = [f"# {config.site_name}", "", f"> {config.site_description}", ""]
    texts: list[str] = []

    for item in _nav[0].items:
        lines += [f"## {item.title or 'Start'}", ""]
        for page in _iter_pages(item):
            text, url = (page.markdown or "").strip() + "\n", f"{config.site_url or ''}{page.file.src_uri}"
            twin = site / page.file.src_uri
            twin.parent.mkdir(parents=True, exist_ok=True)
            twin.write_text(text, encoding="utf-8")
            lines.append(f"- [{page.title}]({url}){_describe(text)}")
            texts.append(f"<!-- {url} -->\n\n{text}")
        lines.append("")

    (site / "llms.txt").write_text("\n".join(lines), encoding="utf-8")
    (site / "llms-full.txt").write_text("\n".join(texts), encoding="utf-8")


def _describe(markdown: str) -> str:
    """Return the first sentence of a page after its title, without links, for `llms.txt`."""
    for block in FENCE.sub("", markdown).split("\n\n")[1:]:
        text = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", " ".join(block.split()))
        if text and not text.startswith(("Source:", "<!--", "#", "|", "```", "- ", "!!!")):
            sentence = re.split(r"(?<=[.!?:])\s", text)[0].rstrip(":")
            return f": {sentence}"
    return ""


def read_mermaid(cache: Path) -> bytes:
    """Return the script, from `cache` or from npm. Raises PluginError."""
    kept = cache / f"mermaid-{MERMAID_VERSION}.min.js"
    if kept.is_file():
        return kept.read_bytes()
    npm = shutil.which("npm")
    if npm is None:
        raise PluginError("npm is needed to fetch Mermaid, which draws the diagrams; install it with Node.js")

    with tempfile.TemporaryDirectory() as directory:
        command = [npm, "pack", MERMAID_PACKAGE, "--pack-destination", directory, "--loglevel", "error"]
        run = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_SECONDS, check=False)
        if run.returncode:
            raise PluginError(f"npm could not fetch {MERMAID_PACKAGE}: {run.stderr.strip()}")
        (archive,) = Path(directory).iterdir()
        script = unpack_mermaid(archive.read_bytes(), MERMAID_SHA512)

    cache.mkdir(exist_ok=True)
    kept.write_bytes(script)
    return script


def unpack_mermaid(archive: bytes, sha512: str) -> bytes:
    """Return the script in npm's archive. Raises PluginError if the digest differs."""
    if base64.b64encode(hashlib.sha512(archive).digest()).decode() != sha512:
        raise PluginError(f"{MERMAID_PACKAGE} has another digest than MERMAID_SHA512; nothing was installed")
    with tarfile.open(fileobj=io.BytesIO(archive)) as package:
        member = package.extractfile(MERMAID_MEMBER)
        if member is None:
            raise PluginError(f"{MERMAID_PACKAGE} has no file {MERMAID_MEMBER}")
        return member.read()


def _move_links(markdown: str, source: PurePosixPath, place: str) -> str:
    """Rewrite the relative links of a page for its place in the site.

    `source` is the page's path in the repository, `place` its path in the site.
    """

    def move(link: re.Match[str]) -> str:
        target = _normalize(source.parent / link[2])
        moved = ROOT_PAGES.get(target) or (target.removeprefix("docs/") if target.startswith("docs/") else None)
        if moved is None or (ROOT / target).is_dir():
            return link[0]
        return f"{link[1]}{relpath(moved, PurePosixPath(place).parent)}{link[3] or ''})"

    return LINK.sub(move, markdown)


def _normalize(path: PurePosixPath) -> str:
    parts: list[str] = []
    for part in path.parts:
        if part == ".." and parts:
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)


def _iter_pages(item: object) -> list[Page]:
    if isinstance(item, Page):
        return [item]
    return [page for child in getattr(item, "children", None) or () for page in _iter_pages(child)]
