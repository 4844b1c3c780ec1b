"""A dynamic skill: its text is written at each read."""

from mcp_django.contrib.skills import skill


@skill("fixtures/stock-report", description="The stock of the fixtures, as it is now.", frontmatter={"license": "MIT"})
def stock_report() -> str:
    return "# Stock\n\nEverything is there.\n"
