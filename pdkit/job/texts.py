"""Running the text comparison of `pdkit.job.exact` as the process of its own that it must be."""

from __future__ import annotations

import json
import subprocess
import sys

from pdkit.job.deployment import Deployment
from pdkit.job.logwatch import last_lines

EXACT_SECONDS = 180
EQUAL = "equal"


def compare_texts(deployment: Deployment, tokens: int) -> str:
    """`equal`, or how the two texts differ, or why they could not be compared."""
    argv = [sys.executable, "-m", "pdkit.job.exact", "--url", deployment.url, "--model", deployment.model]
    argv += ["--model-path", deployment.plan["roles"]["decode"]["model_path"], "--tokens", str(tokens)]
    log = deployment.log("exact")
    try:
        with log.open("w", encoding="utf-8") as errors:
            done = subprocess.run(
                argv, stdout=subprocess.PIPE, stderr=errors, text=True, timeout=EXACT_SECONDS, check=False
            )
    except subprocess.TimeoutExpired:
        return f"no answer within {EXACT_SECONDS} s"
    found = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not found:
        return f"the comparison ended with {done.returncode}: {' '.join(last_lines(log, 3))}"
    result = json.loads(found[-1])
    return EQUAL if result["equal"] else f"P/D {result['pd_text']!r}, decode alone {result['own_text']!r}"
