"""The OpenAPI document, made of ROUTES and the bodies: what is served is what is dispatched."""

import re
from functools import cache
from typing import Any

import msgspec

from tidegate import __version__
from tidegate.wire.api import ROUTES, ProblemBody, Route

_REFERENCE = "#/components/schemas/{name}"
_INTEGERS = {"job", "index", "offset", "limit", "ended", "timeout_ms", "after", "all", "version"}
_LISTS = {("jobs", "job"), ("wait", "job")}


@cache
def document() -> bytes:
    bodies = list(dict.fromkeys([b for r in ROUTES for b in (r.body, r.answer) if b is not None] + [ProblemBody]))
    schemas, components = msgspec.json.schema_components(bodies, ref_template=_REFERENCE)
    known = dict(zip(bodies, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, known)
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "Tidegate",
                "version": __version__,
                "description": "Times are milliseconds since 1970, durations milliseconds, sizes MiB.",
                "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            },
            "paths": paths,
            "components": {
                "schemas": components,
                "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            },
            "security": [{"token": []}, {}],
        }
    )


def _operation(route: Route, known: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    operation: dict[str, Any] = {"operationId": route.name, "summary": route.doc}
    parameters = [_parameter(route, name, "path") for name in re.findall(r"{(\w+)}", route.path)]
    parameters += [{**_parameter(route, name, "query"), "description": doc} for name, doc in route.query]
    if parameters:
        operation["parameters"] = parameters
    if route.body is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": known[route.body]}}}
    answered = {"description": "Done."}
    if route.answer is not None:
        answered["content"] = {"application/json": {"schema": known[route.answer]}}  # type: ignore[assignment]
    problem = {"application/json": {"schema": known[ProblemBody]}}
    operation["responses"] = {
        "200": answered,
        "default": {"description": "Refused: what is wrong, and what to do.", "content": problem},
    }
    return operation


def _parameter(route: Route, name: str, where: str) -> dict[str, Any]:
    whole = name in _INTEGERS and (route.name, name) not in _LISTS
    kind = {"type": "integer"} if whole else {"type": "string"}
    return {"name": name, "in": where, "required": where == "path", "schema": kind}
