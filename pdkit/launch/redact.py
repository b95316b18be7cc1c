"""Secrets are taken out of everything that is shown, and are refused in everything that is written."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

HIDDEN = "[secret]"
SHORTEST = 8
"""Shorter values are not taken for secrets: they would be found everywhere."""

_NAME = (
    r"(?:(?:hf|hub|hugging_?face(?:_hub)?|access|auth|api|refresh|session|ngc|wandb|github)_?(?:token|key)"
    r"|secret(?:_?access)?(?:_?key)?|password|passwd)"
)
_SECRET_VARIABLE = re.compile(rf"(?i)(?:^|_){_NAME}$")
_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\b(?:hf_|nvapi-|sk-|gh[pousr]_|glpat-)[A-Za-z0-9_-]{16,}"), HIDDEN),
    (re.compile(r"\bAKIA[A-Z0-9]{16}\b"), HIDDEN),
    (re.compile(r"(?i)\b(bearer|basic)(\s+)[A-Za-z0-9._~+/=-]{12,}"), rf"\1\2{HIDDEN}"),
    (re.compile(rf"(?i)({_NAME}['\"]?\s*[=:]\s*['\"]?)(?!{re.escape(HIDDEN)})[^\s'\",}})]{{6,}}"), rf"\1{HIDDEN}"),
    (re.compile(r"(://[^/\s:@]+:)[^@/\s]{3,}@"), rf"\1{HIDDEN}@"),
)


def redact(text: str, known: Iterable[str] = ()) -> str:
    """`text` without what looks like a secret, and without the values in `known`."""
    for value in known:
        text = text.replace(value, HIDDEN)
    for pattern, instead in _PATTERNS:
        text = pattern.sub(instead, text)
    return text


def holds_secret(text: str) -> bool:
    """Whether something in `text` looks like a secret."""
    return redact(text) != text


def known_secrets(environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """The values of this process's own secrets, longest first."""
    values = {value for name, value in environment.items() if _SECRET_VARIABLE.search(name) and len(value) >= SHORTEST}
    return tuple(sorted(values, key=len, reverse=True))
