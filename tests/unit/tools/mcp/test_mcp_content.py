"""What the SDK's results become."""

from mcp_types import (
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ReadResourceResult,
    ResourceLink,
    TextContent,
    TextResourceContents,
    Tool,
)

from app.schema.part import FileContent
from app.tools.mcp import client


def test_texts_stand_apart_and_links_are_named() -> None:
    link = ResourceLink(type="resource_link", name="log", uri="file:///log", description="What happened")
    held = EmbeddedResource(type="resource", resource=TextResourceContents(uri="x://y", text="held"))
    result = CallToolResult(content=[TextContent(type="text", text="one"), link, held])
    assert client.of_tool_call(result).text == "one\n\n[Resource log at file:///log: What happened]\n\nheld"


def test_data_becomes_json_only_where_there_is_no_text() -> None:
    assert client.of_tool_call(CallToolResult(content=[], structured_content={"ü": [1]})).text == '{"ü": [1]}'
    both = CallToolResult(content=[TextContent(type="text", text="1")], structured_content={"n": 1})
    assert client.of_tool_call(both).text == "1"


def test_a_blob_is_a_file_named_by_its_address() -> None:
    blob = BlobResourceContents(uri="demo://dir/clip.bin", blob="AAEC")
    result = client.of_tool_call(CallToolResult(content=[EmbeddedResource(type="resource", resource=blob)]))
    expected = FileContent(mime="application/octet-stream", filename="clip.bin", url="data:application/octet-stream;base64,AAEC")
    assert (list(result.texts), list(result.files)) == ([], [expected])


def test_a_resource_is_its_texts_and_its_files() -> None:
    text = TextResourceContents(uri="a://t", text="said")
    blob = BlobResourceContents(uri="a://b", mime_type="image/png", blob="AA==")
    found = client.of_resource(ReadResourceResult(contents=[text, blob]))
    assert (found.text, [file.mime for file in found.files]) == ("said", ["image/png"])


def test_a_schema_that_says_too_little_for_providers_is_filled_in() -> None:
    found = client._tool("s", Tool(name="t", title="Title", input_schema={"type": "object", "additionalProperties": False}))
    assert found.schema == {"type": "object", "properties": {}, "additionalProperties": False}
    assert found.description == "Title"
