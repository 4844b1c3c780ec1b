"""Write the generated pages below `docs/reference/`, or check that they are up to date.

python -m scripts.reference            write the pages
python -m scripts.reference --check    exit with status 1 if a page is out of date
"""

import argparse
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import django

FOLDER = Path(__file__).resolve().parent.parent.parent / "docs" / "reference"


def render_pages() -> dict[str, str]:
    """Map paths below `docs/reference/` to the generated pages."""
    # Django must be ready before the modules of the package are imported.
    from scripts.reference import api, commands, errors, permissions, settings, signals

    return {
        **settings.render_settings(),
        **commands.render_commands(),
        signals.PATH: signals.render_signals(),
        errors.PATH: errors.render_errors(),
        permissions.PATH: permissions.render_permissions(),
        **api.render_api(),
    }


def find_outdated(folder: Path, pages: Mapping[str, str]) -> Iterator[str]:
    """Yield the paths of pages that differ, are missing, or are no longer generated."""
    for path, text in pages.items():
        if not (folder / path).is_file() or (folder / path).read_text(encoding="utf-8") != text:
            yield path
    for page in sorted((folder / "api").glob("*.md")):
        if f"api/{page.name}" not in pages:
            yield f"api/{page.name}"


def write_pages(folder: Path, pages: Mapping[str, str]) -> None:
    """Write the pages that differ, and delete those that are no longer generated."""
    for path in find_outdated(folder, pages):
        if path not in pages:
            (folder / path).unlink()
            continue
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(pages[path], encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Write or check the pages; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m scripts.reference", description="Write the reference.")
    parser.add_argument("--check", action="store_true", help="only check that the pages are up to date")
    only_check: bool = parser.parse_args(arguments).check

    pages = render_pages()
    if not only_check:
        write_pages(FOLDER, pages)
        return 0
    outdated = list(find_outdated(FOLDER, pages))
    for path in outdated:
        print(f"docs/reference/{path} is out of date: run `make reference`")
    return 1 if outdated else 0


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    raise SystemExit(main())
