"""The fixtures, found by autodiscovery. Names and texts are those of the suite's scenarios; change none of them."""

from tests.conformance.mcp_tools import changes, jobs, prompts, questions, resources, tools

__all__ = ["changes", "jobs", "prompts", "questions", "resources", "tools"]
