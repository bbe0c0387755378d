"""JSON that must obey a JSON schema (draft 2020-12); needs the extra `answers` (jsonschema).

The schema is checked when the verifier is made. The answer is read strictly: no NaN, no infinity, no key
given twice (readers disagree about which one counts).
"""

from __future__ import annotations

import json
from typing import Any

from pydantic import Field, PrivateAttr

from trueup.errors import ConfigError, MissingExtraError
from trueup.types import Verdict, VerifierResult
from trueup.verifiers.base import Finding, VerifierSpec, run_check

__all__ = ["SchemaVerifier"]


class SchemaVerifier(VerifierSpec):
    """Passes when the answer (text, bytes or plain data) is JSON that the schema accepts. The witness names
    each fault by its path; the margin is minus their number."""

    name: str = "schema"
    role: Any = "shape"
    unit: str = "faults"
    definition: dict[str, Any] = Field(description="the JSON schema")
    check_formats: bool = True  # "date", "email" and so on are claims, not comments
    _validator: Any = PrivateAttr(default=None)

    def model_post_init(self, context: Any) -> None:
        try:
            import jsonschema
        except ImportError:
            raise MissingExtraError("Checking JSON schemas", "answers", "jsonschema") from None
        draft = jsonschema.Draft202012Validator
        try:
            draft.check_schema(self.definition)
        except jsonschema.SchemaError as error:
            raise ConfigError(f"definition must be a JSON schema, got {error.message}. Mend it.") from None
        self._validator = draft(
            self.definition, format_checker=draft.FORMAT_CHECKER if self.check_formats else None
        )

    def verify(self, answer: Any) -> VerifierResult:
        return run_check(self, self._check, answer)

    def _check(self, answer: Any) -> Finding:
        try:
            data = _strict(answer) if isinstance(answer, (str, bytes, bytearray)) else answer
        except (ValueError, RecursionError) as error:
            return Finding(Verdict.FAIL, -1.0, (str(error)[:120],), "not JSON")
        faults = [f"{error.json_path}: {error.message}"[:200] for error in self._validator.iter_errors(data)]
        return Finding.of_slack(-len(faults), faults[:20])


def _strict(text: str | bytes | bytearray) -> Any:
    def constant(name: str) -> Any:
        raise ValueError(f"{name} is not JSON")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        out = dict(pairs)
        if len(out) != len(pairs):
            raise ValueError("a key is given twice")
        return out

    return json.loads(text, parse_constant=constant, object_pairs_hook=unique)
