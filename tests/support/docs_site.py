"""The site of the documentation, built once for all processes of a run: to build it takes longer than to test it."""

from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

from tests.support.databases import ROOT, locked


@pytest.fixture(scope="session")
def docs_site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site, which tests do not change. Its copy of Mermaid is empty, so no network is needed."""
    base = tmp_path_factory.getbasetemp()
    if hasattr(request.config, "workerinput"):
        base = base.parent  # that of the run
    site = base / "docs-site"
    with locked("docs-site"):
        if not site.exists():
            draft = base / "docs-site-draft"
            config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(draft), strict=True)
            hooks = config.hooks["scripts/docs_site.py"]
            with pytest.MonkeyPatch.context() as monkeypatch:
                monkeypatch.setattr(hooks, "read_mermaid", lambda cache: b"")
                build(config)  # A warning is an error: a lost link or anchor, or a page outside the navigation.
            draft.rename(site)
    return site
