"""Tools of a ModelToolset, by the names that its `tools` accepts.

    build_tool(toolset, "list") -> Tool

Projects add tools of their own as methods marked with `@tool` in the toolset's class.
"""

from functools import partial

from mcp_django.orm.declaration.base import MODEL_APPS, TOOL_ACTIONS, BaseModelToolset
from mcp_django.orm.tools import aggregate, describe, forms, history, rows
from mcp_django.orm.tools.base import ToolTemplate, build_model_tool
from mcp_django.orm.writes import schema
from mcp_django.orm.writes.delete import DeleteOperation
from mcp_django.orm.writes.save import CreateOperation, UpdateOperation
from mcp_django.protocol.types import ToolAnnotations
from mcp_django.server.primitives.base import Tool
from mcp_django.server.primitives.ui_options import UIOptions

TOOL_TEMPLATES = {
    "describe": ToolTemplate(
        describe.describe_model,
        "Describe {names}: the fields, their choices and lookups, and the arguments of all tools.",
        "Describe a model: its fields, what they may be filtered and ordered by, what may be done with it, and "
        "what values that takes. Without a model, list the models that there are.",
        describe.arguments_schema,
        describe.result_schema,
    ),
    "list": ToolTemplate(
        rows.list_rows,
        "List {names}: filtered, searched and ordered, in pages.",
        "List rows of a model, filtered, searched and in order, page by page.",
        rows.list_arguments_schema,
        rows.list_result_schema,
    ),
    "get": ToolTemplate(
        rows.get_row,
        "Get one {name} by its primary key.",
        "Get one row of a model.",
        rows.get_arguments_schema,
        rows.get_result_schema,
    ),
    "count": ToolTemplate(
        rows.count_rows,
        "Count {names}, filtered and searched as for list.",
        "Count rows of a model.",
        rows.count_arguments_schema,
        rows.count_result_schema,
    ),
    "aggregate": ToolTemplate(
        aggregate.aggregate_rows,
        "Group {names} and sum them up: count, sum, avg, min and max, of all rows or by fields, also those of related "
        "models.",
        "Count, sum up and average rows of a model, in groups.",
        aggregate.arguments_schema,
        aggregate.result_schema,
    ),
    "create": ToolTemplate(
        partial(CreateOperation.call, "create"),
        "Add one {name}.",
        "Create a row of a model.",
        schema.create_schema,
        partial(schema.saved_schema, new=True),
        ToolAnnotations(read_only=False, destructive=False, idempotent=False, open_world=False),
    ),
    "update": ToolTemplate(
        partial(UpdateOperation.call, "update"),
        "Change values of one {name}; what is not named stays as it is.",
        "Change a row of a model.",
        schema.update_schema,
        partial(schema.saved_schema, new=False),
        ToolAnnotations(read_only=False, destructive=True, idempotent=False, open_world=False),
    ),
    "delete": ToolTemplate(
        partial(DeleteOperation.call, "delete"),
        "Delete one {name}. With dry_run it says what would be deleted with it.",
        "Delete a row of a model.",
        schema.delete_schema,
        schema.deleted_schema,
        ToolAnnotations(read_only=False, destructive=True, idempotent=True, open_world=False),
    ),
    "history": ToolTemplate(
        history.read_history,
        "What was done to one {name}, the latest first.",
        "List the changes of a row of a model, the newest first.",
        history.arguments_schema,
        history.result_schema,
    ),
    "create_form": ToolTemplate(
        forms.describe_create_form,
        "Open a form in which the user adds one {name}. Without apps: the fields that create takes.",
        "Open a form in which the user adds a row of a model. Without apps: the fields that create takes.",
        forms.create_arguments_schema,
        forms.form_result_schema,
    ),
    "update_form": ToolTemplate(
        forms.describe_update_form,
        "Open a form in which the user changes one {name}. Without apps: its values, and the fields that update takes.",
        "Open a form in which the user changes a row of a model. Without apps: its values, and the fields that update "
        "takes.",
        forms.update_arguments_schema,
        forms.form_result_schema,
    ),
}


def build_tool(toolset: BaseModelToolset, name: str) -> Tool:
    """Build a tool of a toolset.

    Raises:
        DeclarationError: the tool requires an app that is not installed.
    """
    template, action, meta = TOOL_TEMPLATES[name], TOOL_ACTIONS[name], toolset.model._meta
    if name == "history":
        history.check_log(toolset)

    tool = build_model_tool(
        toolset,
        name,
        template.run,
        description=template.description.format(name=meta.verbose_name, names=meta.verbose_name_plural),
        arguments=template.arguments,
        result=template.result,
        action=action,
        annotations=template.annotations,
        atomic=None if template.annotations.read_only else (),
    )
    if toolset.app and name in MODEL_APPS:
        tool.ui = UIOptions(app=MODEL_APPS[name])
    tool.confirm = toolset.get_confirmation(name)
    tool.single_use_state = bool(tool.confirm)
    return tool
