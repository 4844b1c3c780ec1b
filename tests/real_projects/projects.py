"""The projects: their requirements, their settings, and their databases."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class RealProject:
    """A project of others that adopts the package."""

    name: str
    """Also the sub-package with its settings (`settings`) and its rows, users and views (`site`)."""
    requirements: tuple[str, ...]
    """Its distributions on the package index; empty if it is installed from its sources."""
    python: str
    """Lowest version of Python that it takes."""
    has_postgres: bool = False
    """True if it requires PostgreSQL."""


PROJECTS = {
    project.name: project
    for project in (
        RealProject(name="oscar", requirements=("django-oscar>=4.2,<5", "sorl-thumbnail>=12.11"), python="3.12"),
        RealProject(name="wagtail", requirements=("wagtail>=8.0,<9",), python="3.12"),
        RealProject(name="pretix", requirements=("pretix>=2026.8",), python="3.11"),
        RealProject(name="netbox", requirements=(), python="3.12", has_postgres=True),
    )
}
TOOLS = ("model-bakery>=1.20,<2",)
"""Distributions that make the rows of each project."""
