"""The tables of each revision, compared with the official schemas."""

import pytest

from mcp_django.protocol.revisions import (
    ASSUMED_REVISION,
    HANDSHAKE_VERSIONS,
    LATEST,
    LATEST_HANDSHAKE,
    REVISIONS,
    STATELESS_VERSIONS,
    Era,
    negotiate,
)
from tests.official_schema import REVISIONS as OFFICIAL
from tests.official_schema import definitions

FIRST, BATCHING, FORMS, HANDSHAKEN, MODERN = OFFICIAL


FIELDS = {
    "implementation_fields": "Implementation",
    "tool_fields": "Tool",
    "tool_annotation_fields": "ToolAnnotations",
    "prompt_fields": "Prompt",
    "argument_fields": "PromptArgument",
    "resource_fields": "Resource",
    "template_fields": "ResourceTemplate",
}
CONTENT = {
    "text": "TextContent",
    "image": "ImageContent",
    "audio": "AudioContent",
    "resource": "EmbeddedResource",
    "resource_link": "ResourceLink",
}


def properties(revision, definition):
    return definitions(revision.version).get(definition, {}).get("properties", {}).keys()


def methods(revision, union):
    """The methods of the messages in a union such as ClientRequest."""
    found = definitions(revision.version)
    entry = found.get(union, {})
    branches = [found[b["$ref"].rpartition("/")[2]] if "$ref" in b else b for b in entry.get("anyOf", [entry])]
    return {branch["properties"]["method"]["const"] for branch in branches if branch}


def without_tasks(names):
    return {name for name in names if "tasks/" not in name}


def test_the_revisions_are_the_official_ones_oldest_first():
    assert tuple(REVISIONS) == OFFICIAL
    assert all(revision.version == version for version, revision in REVISIONS.items())


def test_each_revision_is_of_one_era():
    assert [*HANDSHAKE_VERSIONS, *STATELESS_VERSIONS] == list(REVISIONS)
    assert {REVISIONS[version].era for version in HANDSHAKE_VERSIONS} == {Era.HANDSHAKE}
    assert {REVISIONS[version].era for version in STATELESS_VERSIONS} == {Era.STATELESS}
    assert (LATEST_HANDSHAKE.version, LATEST.version, ASSUMED_REVISION.version) == (HANDSHAKEN, MODERN, BATCHING)


def test_methods_are_those_of_the_schema_except_for_tasks(subtests: pytest.Subtests) -> None:
    for revision in REVISIONS.values():
        with subtests.test(revision=revision):
            assert revision.methods == without_tasks(methods(revision, "ClientRequest"))


def test_notifications_are_those_of_the_schema_except_for_tasks(subtests: pytest.Subtests) -> None:
    for revision in REVISIONS.values():
        with subtests.test(revision=revision):
            from_client = without_tasks(methods(revision, "ClientNotification"))
            from_server = without_tasks(methods(revision, "ServerNotification"))
            assert revision.client_notifications == from_client
            assert revision.notifications == from_client | from_server


def test_requests_of_the_server_are_those_of_the_schema(subtests: pytest.Subtests) -> None:
    for revision in REVISIONS.values():
        with subtests.test(revision=revision):
            union = "ServerRequest" if revision.era is Era.HANDSHAKE else "InputRequest"
            assert revision.client_requests == without_tasks(methods(revision, union))


def test_fields_are_those_of_the_schema(subtests: pytest.Subtests) -> None:
    for table, definition in FIELDS.items():
        for revision in REVISIONS.values():
            with subtests.test(table=table, definition=definition, revision=revision):
                assert getattr(revision, table) == properties(revision, definition) - {"execution"}


def test_content_blocks_and_their_fields_are_those_of_the_schema(subtests: pytest.Subtests) -> None:
    for revision in REVISIONS.values():
        with subtests.test(revision=revision):
            official = {kind: properties(revision, definition) for kind, definition in CONTENT.items()}
            assert revision.content == {kind: fields for kind, fields in official.items() if fields}


def test_fields_of_contents_are_those_of_the_schema(subtests: pytest.Subtests) -> None:
    for revision in REVISIONS.values():
        with subtests.test(revision=revision):
            text, blob = properties(revision, "TextResourceContents"), properties(revision, "BlobResourceContents")
            assert revision.contents_fields == text | blob


def test_fields_of_annotations_are_those_of_the_schema(subtests: pytest.Subtests) -> None:
    for revision in REVISIONS.values():
        with subtests.test(revision=revision):
            text = definitions(revision.version)["TextContent"]["properties"]["annotations"]
            official = properties(revision, "Annotations") or text["properties"].keys()
            assert revision.annotation_fields == official


def test_capabilities_are_those_of_the_schema_and_extensions(subtests: pytest.Subtests) -> None:
    for revision in REVISIONS.values():
        with subtests.test(revision=revision):
            official = properties(revision, "ServerCapabilities")
            assert revision.capabilities | {"extensions"} == official | {"extensions"}
            assert revision.core_tasks == ("tasks" in official)
            assert "extensions" in revision.capabilities


def test_cacheable_results_are_those_with_required_hints(subtests: pytest.Subtests) -> None:
    for revision in REVISIONS.values():
        with subtests.test(revision=revision):
            results = {
                "server/discover": "DiscoverResult",
                "tools/list": "ListToolsResult",
                "tools/call": "CallToolResult",
                "prompts/list": "ListPromptsResult",
                "prompts/get": "GetPromptResult",
                "resources/list": "ListResourcesResult",
                "resources/templates/list": "ListResourceTemplatesResult",
                "resources/read": "ReadResourceResult",
                "completion/complete": "CompleteResult",
            }
            assert revision.cacheable == {
                method for method, definition in results.items() if "ttlMs" in properties(revision, definition)
            }


def test_flags_of_revisions_match_the_schema(subtests: pytest.Subtests) -> None:
    for revision in REVISIONS.values():
        with subtests.test(revision=revision):
            known = definitions(revision.version)
            assert revision.batches == ("JSONRPCBatchRequest" in known)
            assert revision.result_type == ("resultType" in properties(revision, "Result"))
            assert revision.url_elicitation_error == ("URLElicitationRequiredError" in known)
            assert ("url" in revision.elicitation) == ("ElicitRequestURLParams" in known)
            assert ("form" in revision.elicitation) == ("ElicitRequest" in known)
            assert revision.elicitation_id == ("elicitationId" in properties(revision, "ElicitRequestURLParams"))
            assert ("tools" in revision.sampling) == ("ToolUseContent" in known)
            assert ("context" in revision.sampling) == ("ToolUseContent" in known)
            assert revision.form_multi_select == ("UntitledMultiSelectEnumSchema" in known)
            assert revision.form_titled_enums == ("TitledSingleSelectEnumSchema" in known)
            progress = known.get("ProgressNotificationParams") or known["ProgressNotification"]["properties"]["params"]
            assert revision.progress_message == ("message" in progress["properties"])
            complete = known.get("CompleteRequestParams") or known["CompleteRequest"]["properties"]["params"]
            assert revision.completion_context == ("context" in complete["properties"])
            structured = known["CallToolResult"]["properties"].get("structuredContent")
            assert revision.structured == ("none" if structured is None else structured.get("type", "any"))
            assert bool(revision.input_required_methods) == ("InputRequiredResult" in known)


def test_sampling_requests_match_the_schema(subtests: pytest.Subtests) -> None:
    for revision in REVISIONS.values():
        with subtests.test(revision=revision):
            known = definitions(revision.version)
            branches = known["SamplingMessage"]["properties"]["content"]["anyOf"]
            blocks = [known[branch["$ref"].rpartition("/")[2]] for branch in branches if "$ref" in branch]
            assert revision.sampling_content == {block["properties"]["type"]["const"] for block in blocks}
            assert revision.sampling_lists == any(branch.get("type") == "array" for branch in branches)


def test_rules_of_the_specification_outside_of_the_schema(subtests: pytest.Subtests) -> None:
    for revision in REVISIONS.values():
        with subtests.test(revision=revision):
            newest = revision is LATEST
            assert revision.resource_not_found == (-32602 if newest else -32002)
            assert revision.argument_errors_in_result == (revision.version in (HANDSHAKEN, MODERN))
            assert revision.input_required_methods == (
                {"tools/call", "prompts/get", "resources/read"} if newest else set()
            )


def test_a_revision_of_the_handshake_is_agreed_on(subtests: pytest.Subtests) -> None:
    for version in HANDSHAKE_VERSIONS:
        with subtests.test(version=version):
            assert negotiate(version) is REVISIONS[version]


def test_an_unknown_revision_gets_the_newest_of_the_handshake_era(subtests: pytest.Subtests) -> None:
    for wanted in [*STATELESS_VERSIONS, "1.0", "", None, 7, [], {}]:
        with subtests.test(wanted=wanted):
            assert negotiate(wanted) is LATEST_HANDSHAKE


def test_only_an_offered_revision_is_agreed_on():
    assert negotiate(HANDSHAKEN, [FIRST, FORMS]).version == FORMS
    assert negotiate(FIRST, [FORMS, *STATELESS_VERSIONS]).version == FORMS
    assert negotiate(MODERN, list(REVISIONS)) is LATEST_HANDSHAKE
    with pytest.raises(ValueError, match="handshake"):
        negotiate(FIRST, STATELESS_VERSIONS)


def test_revisions_are_compared_and_hashed_as_objects():
    assert len(set(REVISIONS.values())) == 5
    assert repr(LATEST) == f"<Revision {MODERN}>"
    assert LATEST.with_changes(version=LATEST.version) != LATEST
