"""What a checkpoint's chat template says of tool calls and thinking, as the names of the parsers that read them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TOOL_MARKS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("<tool_call>", "<function="), "qwen3_coder"),
    (("<tool_call>", "arguments"), "hermes"),
    (("[TOOL_CALLS]",), "mistral"),
    (("<|python_tag|>",), "llama3_json"),
    (("<|channel|>", "functions"), "harmony"),
)
"""Texts by which a template tells the model how to call, and Dynamo's parser of that form; the first match counts."""


def parsers_of(folder: Path) -> tuple[str | None, str | None]:
    """(tool parser, reasoning parser) as far as a folder's chat template tells; `none` for one that knows no tools."""
    template = _template(folder)
    tool = "none" if template and "tools" not in template else None
    for marks, parser in TOOL_MARKS:
        if tool is None and all(mark in template for mark in marks):
            tool = parser
    return tool, "qwen3" if "<think>" in template and "enable_thinking" in template else None


def _template(folder: Path) -> str:
    """The chat template in a file of its own, else the one in tokenizer_config.json; empty where there is none."""
    try:
        return (folder / "chat_template.jinja").read_text(encoding="utf-8")
    except (OSError, ValueError):
        pass
    try:
        config: Any = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    template = config.get("chat_template") if isinstance(config, dict) else None
    return template if isinstance(template, str) else ""
