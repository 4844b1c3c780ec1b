"""The fixtures, found by autodiscovery. Names and texts are those of the suite's scenarios; change none of them.
`journey` is for the real clients of `tests.clients`.
"""

from tests.conformance.mcp_tools import changes, jobs, journey, prompts, questions, reports, resources, tools

__all__ = ["changes", "jobs", "journey", "prompts", "questions", "reports", "resources", "tools"]
