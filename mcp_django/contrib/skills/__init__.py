"""Skills: instructions with files that agents load on demand, as folders, rows or functions.

    INSTALLED_APPS = [..., "mcp_django.contrib.skills"]
    MCP = {
        "SERVERS": {
            "default": {
                "EXTENSIONS": ["mcp_django.contrib.skills.SkillsExtension"],
                "PROVIDERS": ["mcp_django.contrib.skills.AppSkills"],
            }
        }
    }

The extension serves `skills/list`, `skills/get` and `resources/directory/read`. Providers serve the files.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcp_django.contrib.skills.extension import SkillsExtension
    from mcp_django.contrib.skills.functions import skill
    from mcp_django.contrib.skills.model_skill import ModelSkill
    from mcp_django.contrib.skills.provider import AppSkills, Skills
    from mcp_django.contrib.skills.rows import StoredSkills

__all__ = ["AppSkills", "ModelSkill", "Skills", "SkillsExtension", "StoredSkills", "skill"]

_MODULES = {
    "AppSkills": "provider",
    "ModelSkill": "model_skill",
    "Skills": "provider",
    "SkillsExtension": "extension",
    "StoredSkills": "rows",
    "skill": "functions",
}


def __getattr__(name: str) -> Any:
    # Lazy, because Django imports this package before its models may be imported.
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
