"""The recipe format for editors (JSON Schema) and readers (`docs/recipe.md`), made from the models' docstrings."""

from __future__ import annotations

from typing import Any

from pdkit.recipe.schema import Recipe


def recipe_schema() -> dict[str, Any]:
    """JSON Schema of a recipe file, with `extends` and `matrix`, which reading resolves."""
    schema = Recipe.model_json_schema(by_alias=True)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "pdkit recipe"
    names = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
    schema["properties"]["extends"] = {**names, "description": "Base recipe, relative to this file; this file wins."}
    schema["properties"]["matrix"] = {
        "type": "object",
        "additionalProperties": {"type": "array", "minItems": 1},
        "description": "Dotted names to lists of values: one recipe per combination.",
    }
    schema["required"] = []  # a file that extends a base may leave anything to it
    return schema


def recipe_reference() -> str:
    """Every setting of a recipe as Markdown."""
    schema = recipe_schema()
    lines = ["# Recipe reference", "", "Made from `pdkit/recipe/schema.py` by `make docs`; do not edit.", ""]
    lines += _section("Recipe", schema)
    for name, part in schema["$defs"].items():
        if "properties" in part:
            lines += _section(name, part)
    return "\n".join(lines) + "\n"


def _section(name: str, part: dict[str, Any]) -> list[str]:
    lines = [
        f"## {name}",
        "",
        " ".join(part.get("description", "").split()),
        "",
        "| setting | type | default | meaning |",
    ]
    lines.append("|---|---|---|---|")
    for key, field in part["properties"].items():
        text = " ".join(field.get("description", "").split()).replace("|", "\\|")
        default = field.get("default", "")
        shown = "" if default in ("", None) or isinstance(default, dict) else f"`{default}`"
        lines.append(f"| `{key}` | {_type(field).replace('|', 'or')} | {shown} | {text} |")
    return [*lines, ""]


def _type(field: dict[str, Any]) -> str:
    if "$ref" in field:
        name = field["$ref"].rsplit("/", 1)[-1]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in field:
        return " | ".join(dict.fromkeys(_type(one) for one in field["anyOf"] if one.get("type") != "null"))
    if "enum" in field:
        return " | ".join(f"`{value}`" for value in field["enum"])
    if "const" in field:
        return f"`{field['const']}`"
    if field.get("type") == "array":
        return f"list of {_type(field.get('items', {}))}"
    return str(field.get("type", "any"))
