import pytest

from mcp_django.protocol import errors
from mcp_django.protocol.errors import (
    HeaderMismatch,
    InsufficientScope,
    InternalError,
    InvalidParams,
    InvalidRequest,
    MCPError,
    MethodNotFound,
    MissingClientCapability,
    ParseError,
    ResourceNotFound,
    ToolError,
    TransportRefusal,
    UnsupportedProtocolVersion,
    URLElicitationRequired,
)


def test_each_error_has_the_code_and_status_of_the_specification(subtests: pytest.Subtests) -> None:
    cases = [
        (ParseError, -32700, 400),
        (InvalidRequest, -32600, 400),
        (MethodNotFound, -32601, 404),
        (InvalidParams, -32602, 400),
        (InternalError, -32603, 200),
        (HeaderMismatch, -32020, 400),
        (MissingClientCapability, -32021, 400),
        (UnsupportedProtocolVersion, -32022, 400),
        (URLElicitationRequired, -32042, 200),
        (InsufficientScope, -32600, 403),
    ]
    for kind, code, status in cases:
        with subtests.test(kind=kind, code=code, status=status):
            assert (kind.code, kind.http_status) == (code, status)


def test_the_tree_in_the_docstring_names_every_error():
    kinds = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)]
    assert len(kinds) == 15
    assert [kind.__name__ for kind in kinds if kind.__name__ not in errors.__doc__] == []


def test_the_message_is_the_classs_own_unless_given():
    assert str(MethodNotFound()) == MethodNotFound().message == "Method not found"
    problem = MethodNotFound("Method not found: tools/eat", data={"method": "tools/eat"})
    assert (problem.message, str(problem), problem.data) == (str(problem), problem.message, {"method": "tools/eat"})
    assert MethodNotFound.message == "Method not found"


def test_a_resource_that_is_not_found_names_its_uri_in_the_data():
    assert ResourceNotFound("file:///x").data == {"uri": "file:///x"}
    assert isinstance(ResourceNotFound("file:///x"), InvalidParams)


def test_a_missing_capability_is_named_as_an_object():
    assert MissingClientCapability({"elicitation": {"url": {}}}).data == {
        "requiredCapabilities": {"elicitation": {"url": {}}}
    }


def test_an_unsupported_version_is_echoed_beside_the_supported_ones():
    assert UnsupportedProtocolVersion(("b", "a"), "v999").data == {"supported": ["b", "a"], "requested": "v999"}


def test_missing_scopes_are_named():
    assert InsufficientScope({"airports:write"}).data == {"requiredScopes": ["airports:write"]}


def test_required_url_elicitations_are_listed():
    visit = {"mode": "url", "message": "Sign in", "url": "https://example.com", "elicitationId": "1"}
    assert URLElicitationRequired([visit]).data == {"elicitations": [visit]}


def test_an_invalid_request_may_have_an_id():
    assert InvalidRequest("no").request_id is None
    assert InvalidRequest("no", request_id=0).request_id == 0


def test_a_tool_error_and_a_transport_refusal_are_not_protocol_errors():
    assert not issubclass(ToolError, MCPError)
    assert not issubclass(TransportRefusal, MCPError)


def test_a_transport_refusal_holds_an_http_answer():
    refusal = TransportRefusal(405, [(b"allow", b"POST")], b"no")
    assert (refusal.status, refusal.headers, refusal.body) == (405, ((b"allow", b"POST"),), b"no")
