"""Finds what a project serves: imports a module such as `mcp_tools.py` of every installed app, as the admin does."""

from collections.abc import Iterable

from django.utils.module_loading import autodiscover_modules


def autodiscover(modules: Iterable[str] = ("mcp_tools",)) -> None:
    """Import the submodules of that name of every installed app. An app without them is passed over.

    Raises whatever an existing module raises while it is imported: a tool that silently is not there is worse than a
    project that does not start.
    """
    autodiscover_modules(*modules)
