"""What a code means: the page of its rule, or its part of the page of reading errors or of gates."""

from __future__ import annotations

import difflib
import re

from pdkit.errors import UsageError
from pdkit.paths import shipped

_MADE = re.compile(r"\A<!--.*?-->\n\n", re.DOTALL)
_LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")


def explained(code: str) -> str:
    """The text about a code; UsageError with the nearest codes when there is none."""
    texts = _texts()
    wanted = code.strip().upper()
    if wanted not in texts:
        near = difflib.get_close_matches(wanted, texts, n=3, cutoff=0.6)
        fix = f"did you mean {', '.join(near)}?" if near else f"the codes are {', '.join(sorted(texts))}"
        raise UsageError(f"there is no code `{code}`", fix=fix)
    return texts[wanted]


def _texts() -> dict[str, str]:
    """Every code with its text; pages of several codes are cut at their second headings."""
    found: dict[str, str] = {}
    for page in sorted((shipped("docs") / "rules").glob("PD*.md")):
        text = _LINK.sub(r"\1", _MADE.sub("", page.read_text(encoding="utf-8")))
        if page.stem.endswith("xx"):
            parts = re.split(r"^## (PD\d{3})", text, flags=re.MULTILINE)
            found |= {code: f"# {code}{rest.rstrip()}\n" for code, rest in zip(parts[1::2], parts[2::2], strict=True)}
        else:
            found[page.stem] = text
    return found
