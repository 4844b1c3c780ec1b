"""Declarations of the demo for MCP clients, one lesson in each module.

Django imports the `mcp_tools` of each installed app at startup, and its declarations are served at /mcp. Read them in
this order: `functions`, `models`, `resources`, `tasks`, `apps`.
"""

from project.airports.mcp_tools import apps, functions, models, resources, tasks

__all__ = ["apps", "functions", "models", "resources", "tasks"]
