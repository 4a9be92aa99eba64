"""Just enough of JSON Schema to hold answers to the OpenAPI document: what our own document uses, and nothing else."""

from typing import Any

KINDS: dict[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "integer": (int,), "number": (int, float),
    "boolean": (bool,), "null": (type(None),),
}  # fmt: skip
KNOWN = {
    "$ref", "anyOf", "type", "properties", "required", "additionalProperties", "items", "default", "title",
    "description", "minimum", "maximum", "maxLength", "maxItems", "enum",
}  # fmt: skip


def mistakes(value: Any, schema: dict[str, Any], document: dict[str, Any], at: str = "$") -> list[str]:
    """What of the value is not as the schema says."""
    unknown = schema.keys() - KNOWN
    assert not unknown, f"the document uses {unknown}: teach this reader"
    if "$ref" in schema:
        return mistakes(value, document["components"]["schemas"][schema["$ref"].rpartition("/")[2]], document, at)
    if "anyOf" in schema:
        each = [mistakes(value, one, document, at) for one in schema["anyOf"]]
        return [] if any(not found for found in each) else each[0]
    kind = schema.get("type")
    if kind and (not isinstance(value, KINDS[kind]) or (isinstance(value, bool) and kind != "boolean")):
        return [f"{at} is {type(value).__name__} and no {kind}"]
    if isinstance(value, list):
        return [
            bad for n, one in enumerate(value) for bad in mistakes(one, schema.get("items", {}), document, f"{at}[{n}]")
        ]
    return of_object(value, schema, document, at) if isinstance(value, dict) else []


def of_object(value: dict[str, Any], schema: dict[str, Any], document: dict[str, Any], at: str) -> list[str]:
    properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    found = [f"{at} has no {name}" for name in schema.get("required", []) if name not in value]
    for name, one in value.items():
        if name in properties:
            found += mistakes(one, properties[name], document, f"{at}.{name}")
        elif isinstance(others, dict):
            found += mistakes(one, others, document, f"{at}.{name}")
        elif not others:
            found.append(f"{at} has {name}, of which nothing is said")
    return found
