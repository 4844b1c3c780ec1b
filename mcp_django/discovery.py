"""Autodiscovery of modules such as `mcp_tools.py`, as in Django's admin."""

from collections.abc import Iterable

from django.utils.module_loading import autodiscover_modules


def autodiscover(modules: Iterable[str] = ("mcp_tools",)) -> None:
    """Import the submodules with these names of every installed app.

    Apps without such a module are skipped. Errors raised during the import of an existing module are raised: a silently
    missing tool is worse than a project that does not start.
    """
    autodiscover_modules(*modules)
