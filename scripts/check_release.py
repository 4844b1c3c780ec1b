"""Compare a tag with the version of pyproject.toml and the newest release of the changelog.

usage: scripts/check_release.py v1.2.3
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADING = re.compile(r"^## \[(?P<version>\d[^\]]*)\] - (?P<date>.+)$", re.MULTILINE)
DATE = re.compile(r"\d{4}-\d\d-\d\d")


def find_problems(tag: str, version: str, changelog: str) -> list[str]:
    """List the reasons why a tag cannot be published."""
    problems = []
    if tag != f"v{version}":
        problems.append(f"The tag is {tag}, and pyproject.toml has version {version}: tag v{version}.")

    newest = HEADING.search(changelog)
    if newest is None or newest["version"] != version:
        problems.append(f"The newest section of CHANGELOG.md is not that of {version}: add '## [{version}] - DATE'.")
    elif not DATE.fullmatch(newest["date"]):
        problems.append(f"The section of {version} in CHANGELOG.md has no date: replace '{newest['date']}' by it.")
    return problems


def main() -> None:
    """Check the tag that is the only argument."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    problems = find_problems(sys.argv[1], version, (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    if problems:
        sys.exit("\n".join(problems))
    print(f"{sys.argv[1]} can be published.")


if __name__ == "__main__":
    main()
