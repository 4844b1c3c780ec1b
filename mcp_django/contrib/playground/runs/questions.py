"""Questions of a server as forms, and their answers as responses of a client."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from django import forms
from django.utils.translation import gettext_lazy as _

from mcp_django.contrib.playground.content_blocks import ContentBlock, list_blocks
from mcp_django.contrib.playground.forms.schema_forms import PREFIX, ArgumentsForm, build_filled_form, read_json
from mcp_django.contrib.playground.messages import CLIENT, format_json
from mcp_django.extensions.errors import DeclarationError
from mcp_django.extensions.schemas import SchemaChecker

ACCEPT, DECLINE, CANCEL = "accept", "decline", "cancel"
LINK_SCHEMES = frozenset({"http", "https"})
"""Schemes of the URLs that the page links."""
TOOL_USE = "toolUse"
JSONObject = dict[str, Any]


class DecisionForm(forms.Form):
    """Decision of the user about one question."""

    decision = forms.ChoiceField(label=_("Answer"), widget=forms.RadioSelect, initial=ACCEPT)

    def __init__(self, choices: Sequence[tuple[str, Any]], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields["decision"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = choices


class ModelMessageForm(forms.Form):
    """Message of the model that the user plays."""

    text = forms.CharField(label=_("Message of the model"), required=False, strip=False, widget=forms.Textarea)
    model = forms.CharField(label=_("Name of the model"), initial=CLIENT["name"])
    stop_reason = forms.ChoiceField(
        label=_("Reason of the end"),
        choices=[(name, name) for name in ("endTurn", "stopSequence", "maxTokens", TOOL_USE)],
    )
    tool_calls = forms.CharField(
        label=_("Calls of tools"),
        required=False,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text=_('JSON: a list such as [{"name": "search", "input": {"query": "Oslo"}}].'),
    )

    def __init__(self, *args: Any, has_tools: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not has_tools:
            del self.fields["tool_calls"]

    def clean_tool_calls(self) -> list[JSONObject]:
        """Return the calls of tools as content blocks."""
        text = self.cleaned_data["tool_calls"]
        try:
            calls = read_json(text) if text.strip() else []
        except ValueError as problem:
            raise forms.ValidationError(_("This is not valid JSON: %(problem)s") % {"problem": problem}) from None
        if not isinstance(calls, list) or not all(_is_tool_call(each) for each in calls):
            raise forms.ValidationError(_("Give a list of objects with a name and an input."))
        return [{"type": "tool_use", "id": f"call-{number}", **call} for number, call in enumerate(calls, 1)]

    def build_result(self) -> JSONObject:
        """Return the CreateMessageResult."""
        values = self.cleaned_data
        text = {"type": "text", "text": values["text"].replace("\r\n", "\n")}
        calls = values.get("tool_calls", [])
        content: Any = text
        if calls:
            content = [text, *calls] if values["text"] else calls
        return {
            "role": "assistant",
            "content": content,
            "model": values["model"],
            "stopReason": TOOL_USE if calls else values["stop_reason"],
        }


class RootsForm(forms.Form):
    """Roots of the client."""

    roots = forms.CharField(
        label=_("Roots"),
        required=False,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text=_("One URI on each line, such as file:///home/ada/project."),
    )

    def clean_roots(self) -> list[str]:
        """Return the URIs."""
        uris = [line.strip() for line in self.cleaned_data["roots"].splitlines() if line.strip()]
        wrong = next((uri for uri in uris if urlsplit(uri).scheme != "file"), None)
        if wrong is not None:
            raise forms.ValidationError(_("The URI %(uri)s does not start with file://.") % {"uri": wrong})
        return uris

    def build_result(self) -> JSONObject:
        """Return the ListRootsResult."""
        return {"roots": [{"uri": uri} for uri in self.cleaned_data["roots"]]}


class ServerQuestion:
    """Question of a server, with its forms. Without `data` they are empty."""

    def __init__(self, key: str, request: Mapping[str, Any], prefix: str, data: Any = None) -> None:
        self.key = key
        self.method = str(request.get("method", ""))
        params = request.get("params")
        self.params: Mapping[str, Any] = params if isinstance(params, Mapping) else {}
        self.decision = DecisionForm(self._list_decisions(), data, prefix=prefix)
        is_accepted = data is None or data.get(f"{prefix}-decision") == ACCEPT
        self.form = self._build_form(prefix, data if is_accepted else None)

    @property
    def is_elicitation(self) -> bool:
        """Return True for a form or a link."""
        return self.method == "elicitation/create"

    @property
    def is_sampling(self) -> bool:
        """Return True for a request to the model."""
        return self.method == "sampling/createMessage"

    @property
    def message(self) -> str:
        """Text for the user; empty without one."""
        return str(self.params.get("message", "")) if self.is_elicitation else ""

    @property
    def url(self) -> str:
        """Address of the page that the user opens; empty for others."""
        return str(self.params.get("url", "")) if self.is_elicitation else ""

    @property
    def has_link(self) -> bool:
        """Return True if the page may link the address."""
        return urlsplit(self.url).scheme in LINK_SCHEMES

    @property
    def rows(self) -> Any:
        """Rows of a form from a schema, else None."""
        return self.form.rows if isinstance(self.form, ArgumentsForm) else None

    @property
    def blocks(self) -> list[ContentBlock]:
        """Messages to the model."""
        messages = self.params.get("messages") if self.is_sampling else None
        return [block for message in messages or () for block in _list_message_blocks(message)]

    @property
    def limits(self) -> str:
        """Other parameters of a request to the model, as JSON."""
        return format_json({name: value for name, value in self.params.items() if name != "messages"})

    def _list_decisions(self) -> list[tuple[str, Any]]:
        if self.is_elicitation:
            return [(ACCEPT, _("Accept")), (DECLINE, _("Decline")), (CANCEL, _("Cancel"))]
        return [(ACCEPT, _("Answer")), (DECLINE, _("Refuse"))]

    def _build_form(self, prefix: str, data: Any) -> Any:
        if self.is_sampling:
            return ModelMessageForm(data, prefix=prefix, has_tools="tools" in self.params)
        if self.method == "roots/list":
            return RootsForm(data, prefix=prefix)
        schema = self.params.get("requestedSchema")
        if not isinstance(schema, dict):
            return None
        return ArgumentsForm(schema, data, prefix=prefix, initial=_build_initial(schema))

    def is_valid(self) -> bool:
        """Return True if there is a decision, and an accepted form has valid values."""
        if not self.decision.is_valid():
            return False
        if self.form is None or self.decision.cleaned_data["decision"] != ACCEPT:
            return True
        if not self.form.is_valid():
            return False
        if isinstance(self.form, ArgumentsForm):
            _check_values(self.form, self.params["requestedSchema"])
        return not self.form.errors

    def build_result(self) -> JSONObject | None:
        """Return the result of a valid answer; None if the user refused, which has no result."""
        decision = self.decision.cleaned_data["decision"]
        if not self.is_elicitation:
            result: JSONObject | None = self.form.build_result() if decision == ACCEPT else None
            return result
        if decision == ACCEPT and isinstance(self.form, ArgumentsForm):
            return {"action": decision, "content": self.form.build_arguments()}
        return {"action": decision}


def build_questions(requests: Mapping[str, Any], data: Any = None) -> list[ServerQuestion]:
    """Return the questions of a round."""
    return [
        ServerQuestion(key, request if isinstance(request, Mapping) else {}, f"question-{number}", data)
        for number, (key, request) in enumerate(requests.items(), 1)
    ]


def _check_values(form: ArgumentsForm, schema: JSONObject) -> None:
    """Put the rules that the values break at their fields."""
    try:
        problems = SchemaChecker(schema).describe_problems(form.build_arguments())
    except DeclarationError:
        return  # The schema is wrong, and the server decides.
    if problems:
        form.add_server_errors(problems)
        if not form.errors:
            form.add_error(None, problems)


def _build_initial(schema: JSONObject) -> JSONObject:
    """Return the defaults of a schema as the values of its fields."""
    properties = schema.get("properties")
    found = properties if isinstance(properties, dict) else {}
    defaults = {name: part["default"] for name, part in found.items() if isinstance(part, dict) and "default" in part}
    filled = build_filled_form(schema, defaults) if defaults else None
    return {} if filled is None else {key: value for key, value in filled.data.items() if key.startswith(PREFIX)}


def _list_message_blocks(message: Any) -> list[ContentBlock]:
    if not isinstance(message, Mapping):
        return []
    content = message.get("content")
    parts = content if isinstance(content, list) else [content]
    return list_blocks(
        {
            "messages": [
                {"role": message.get("role", ""), "content": part} for part in parts if isinstance(part, Mapping)
            ]
        }
    )


def _is_tool_call(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("name"), str)
        and isinstance(value.get("input"), dict)
        and isinstance(value.get("id", ""), str)
    )
