"""Import from tests.repository.pages instead: these names stay here until other folders do."""

from tests.repository.pages import ROOT, python_blocks, served_by

__all__ = ["ROOT", "python_blocks", "served_by"]
