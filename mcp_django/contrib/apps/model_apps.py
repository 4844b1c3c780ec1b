"""Ready-made apps of models: table, card, form and chart.

A ModelToolset with `app = True` has them. Their pages have the name of the tool, the title of the model, and the texts
of the package in each language. All data come from results.
"""

from typing import Any

from django.conf import settings as django_settings
from django.utils.text import capfirst
from django.utils.translation import gettext, gettext_noop, override

from mcp_django.contrib.apps.declaration import MODEL_APP_PREFIX, App
from mcp_django.extensions.primitives import Tool

_TEXTS = (
    gettext_noop("Add"),
    gettext_noop("Add: {name}"),
    gettext_noop("All rows"),
    gettext_noop("Back"),
    gettext_noop("Change"),
    gettext_noop("Change: {name}"),
    gettext_noop("Condition"),
    gettext_noop("Field"),
    gettext_noop("Filter"),
    gettext_noop("Filters"),
    gettext_noop("Group by"),
    gettext_noop("Next"),
    gettext_noop("No"),
    gettext_noop("Nothing was changed."),
    gettext_noop("Page {number}"),
    gettext_noop("Previous"),
    gettext_noop("Remove the filter {filter}"),
    gettext_noop("Save"),
    gettext_noop("Saved."),
    gettext_noop("Search"),
    gettext_noop("The call was cancelled."),
    gettext_noop("The user saved:"),
    gettext_noop("There are more groups than these."),
    gettext_noop("There are no rows."),
    gettext_noop("This field is required."),
    gettext_noop("This was a trial. Nothing was saved."),
    gettext_noop("Value"),
    gettext_noop("Values"),
    gettext_noop("Yes"),
    gettext_noop("at least"),
    gettext_noop("at most"),
    gettext_noop("contains"),
    gettext_noop("is"),
    gettext_noop("is empty"),
    gettext_noop("{number} in all"),
)
"""Texts of the scripts."""


def list_template_names(tool: Tool, app: App) -> list[str]:
    """Return the names of templates of an app for a tool; the first one that exists is used.

    A project overrides a ready-made app for one model, for the models of a Django app, or for all.
    """
    label = tool.metadata.get("model")
    if not app.name.startswith(MODEL_APP_PREFIX) or not isinstance(label, str):
        return [app.template]
    app_label, model_name = label.lower().split(".")
    file = app.template.rpartition("/")[2]
    return [f"mcp_apps/{app_label}/{model_name}/{file}", f"mcp_apps/{app_label}/{file}", app.template]


def build_page_data(tool: Tool, prefix: str) -> dict[str, Any]:
    """Return the constants of the scripts for a tool; {} for a tool of no model."""
    label = tool.metadata.get("model")
    if not isinstance(label, str):
        return {}
    return {
        "tool": tool.origin.name,
        "verb": tool.metadata["verb"],
        "prefix": prefix,
        "title": str(capfirst(label.rpartition(".")[2])),
        "texts": collect_texts(),
    }


def collect_texts() -> dict[str, dict[str, str]]:
    """Return the translated texts by language.

    Languages are those in `LANGUAGES`. Untranslated texts are left out.
    """
    found: dict[str, dict[str, str]] = {}
    for code in dict.fromkeys([django_settings.LANGUAGE_CODE, *(code for code, _ in django_settings.LANGUAGES)]):
        with override(code):
            texts = {text: translated for text in _TEXTS if (translated := gettext(text)) != text}
        if texts:
            found[code.lower()] = texts
    return found
