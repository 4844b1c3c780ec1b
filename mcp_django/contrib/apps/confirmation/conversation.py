"""Conversation with a client that has apps and no elicitation.

A form ends the call with a result: its app shows the form, and sends the answer by a tool. The handler then runs again
from its first line, in both eras, and reads the answer from the sealed token of the form.

Other requests, such as sampling, go to the client as usual.
"""

import secrets
from typing import Any

from mcp_django.extensions import Call
from mcp_django.extensions.calls import Era, jsonrpc
from mcp_django.extensions.conversations import (
    INPUT_REQUIRED,
    CallSuspended,
    ConversationLimits,
    InputRequest,
    InputRequired,
    InputUnavailable,
    LiveConversation,
    ReplayConversation,
    StoredRounds,
    parse_value,
)

FORM_CAPABILITY: dict[str, Any] = {"elicitation": {"form": {}}}
"""Capability that the app provides in place of the client."""
REQUEST_AFTER_FORM_MESSAGE = (
    "After a form in an app, the tool cannot send other requests to a client of this revision; send them before it"
)


class AppConversation(ReplayConversation):
    """Conversation of one run of a tool whose forms are shown by an app.

    `declared` is the call with the capabilities that the client declared.
    """

    def __init__(
        self,
        call: Call,
        declared: Call,
        binding: bytes,
        limits: ConversationLimits,
        stored: StoredRounds | None = None,
    ) -> None:
        """Read the earlier rounds from the params of a first call, or from `stored`."""
        is_live = call.revision.era is Era.HANDSHAKE
        self._can_end_round = stored is None and not is_live
        if stored is None and is_live:
            stored = StoredRounds({"flow": _create_flow_id(call)}, {})
        super().__init__(call, binding, limits, stored)
        self.waits_for_response = is_live
        self._declared = declared
        self._messages: dict[str, str] = {}

    @property
    def form(self) -> tuple[str, InputRequest] | None:
        """Key and request of the form to show, with its original message; None without one."""
        for key, message in self._messages.items():
            _, request = self.pending_requests[key]
            return key, request._replace(params={**(request.params or {}), "message": message})
        return None

    async def request_input(self, request: InputRequest) -> Any:
        if request.required_capability != FORM_CAPABILITY:
            return await self._request_from_client(request)
        if request.strict:
            self._declared.require_capability(request.required_capability)
        try:
            return await super().request_input(request)
        except CallSuspended:
            self._messages[self._get_last_pending()] = (request.params or {})["message"]
            raise

    async def _request_from_client(self, request: InputRequest) -> Any:
        try:
            return await super().request_input(request)
        except CallSuspended:
            if not self.waits_for_response:
                if self._can_end_round:
                    raise
                raise InputUnavailable(REQUEST_AFTER_FORM_MESSAGE) from None
        key, raw_responses = self._get_last_pending(), list[Any]()

        async def parse(raw: Any) -> Any:
            raw_responses.append(raw)
            return await parse_value(request.parse, raw)

        try:
            value = await LiveConversation(self._declared, self._limits).request_input(request._replace(parse=parse))
        except BaseException:
            del self.pending_requests[key]
            raise
        self.record_response(key, raw_responses[-1])
        return value

    def _get_last_pending(self) -> str:
        return next(reversed(self.pending_requests))

    def get_state(self) -> dict[str, Any]:
        """Return the state after this run, in which only the shown form counts as sent."""
        state, form = super().get_state(), self.form
        if form is not None:
            state["asked"] = {form[0]: state["asked"][form[0]]}
        return state

    def build_input_required(self) -> InputRequired:
        """Return the mark of a run that ended with a form, or the result that ends a round of the client."""
        others = {key: pending for key, pending in self.pending_requests.items() if key not in self._messages}
        if not others and self._messages:
            return InputRequired(resultType=INPUT_REQUIRED)
        # These requests come first: the client can answer them in a round of its own.
        self._messages.clear()
        self.pending_requests = others
        return super().build_input_required()


def _create_flow_id(call: Call) -> str:
    """Return the id of a conversation, which is equal for a repeated request of a session."""
    if call.session is None:
        return secrets.token_hex(16)
    return f"{call.session.pk} {jsonrpc.dumps(call.id).decode()}"
