"""A stand-in for `vllm bench serve`: it takes the same options, asks no server, and writes a result that can be wrong.

FAKE_LOAD names what is wrong; FAKE_CALLS is a file that gets one line per call.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

FLAGS = ("ignore-eos", "save-result", "save-detailed", "disable-tqdm")
OPTIONS = (
    "backend", "base-url", "endpoint", "model", "tokenizer", "dataset-name", "random-input-len", "random-output-len",
    "random-range-ratio", "random-prefix-len", "num-prompts", "max-concurrency", "request-rate", "num-warmups", "seed",
    "temperature", "percentile-metrics", "metric-percentiles", "result-dir", "result-filename",
)  # fmt: skip


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for flag in FLAGS:
        parser.add_argument(f"--{flag}", action="store_true", required=True)
    for option in OPTIONS:
        parser.add_argument(f"--{option}", required=True)
    return parser.parse_args()


def result(asked: argparse.Namespace, wrong: str) -> dict[str, object]:
    sent, width = int(asked.num_prompts), int(asked.max_concurrency)
    generated, prompt = int(asked.random_output_len), int(asked.random_input_len)
    speed = 1.0 + 0.1 * (int(asked.seed) % 100)  # each repeat is a little slower
    gap = 0.02 * speed
    ttft = 0.1
    width = 1 if wrong == "one-at-a-time" else width
    start = time.perf_counter()
    whole = ttft + gap * (generated - 1) + 0.001  # a client needs a moment before its next request
    starts = [start + (n // width) * whole for n in range(sent)]
    outputs = [generated] * sent
    errors = [""] * sent
    if wrong == "zero-tokens":
        outputs = [0] * sent
    if wrong == "long-answers":
        outputs = [generated * 2] * sent
    if wrong == "one-cut":
        outputs[-1] = 3
    if wrong == "one-empty":
        outputs[-1] = 0
    gaps = [gap] * (generated - 1)
    if wrong == "bunched":  # every second chunk comes with the one before
        gaps = [2 * gap if n % 2 == 0 else 0.0 for n in range(generated - 1)]
        whole += sum(gaps) - gap * (generated - 1)
        starts = [start + (n // width) * whole for n in range(sent)]
    if wrong == "one-error":
        errors[0], outputs[0] = "Traceback\nServerDisconnectedError: gone", 0
    duration = starts[-1] - start + whole - 0.001
    return {
        "failed": sum(1 for each in errors if each),
        "output_throughput": sum(outputs) / duration * (2 if wrong == "own-figure" else 1),
        "start_times": starts,
        "ttfts": [ttft] * sent,
        "itls": [gaps] * sent,
        "input_lens": [prompt * 2 if wrong == "long-prompts" else prompt] * sent,
        "output_lens": outputs,
        "errors": errors,
    }


def burn(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def main() -> int:
    asked = options()
    wrong = os.environ.get("FAKE_LOAD", "")
    with Path(os.environ["FAKE_CALLS"]).open("a") as calls:
        calls.write(f"{asked.max_concurrency} {asked.num_prompts} {asked.num_warmups} {asked.seed}\n")
    if wrong == "exit-3":
        print("KeyError: x\nRuntimeError: no such model\nerror details\nbye")
        return 3
    if wrong == "hangs":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        Path(os.environ["FAKE_CALLS"]).with_name("pids").write_text(f"{os.getpid()} {child.pid}")
        time.sleep(60)
    found = result(asked, wrong)
    if wrong == "busy-client":
        burn(2.5)
    if wrong != "no-artifact":
        folder = Path(asked.result_dir)
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(found)
        (folder / asked.result_filename).write_text(text[: len(text) // 2] if wrong == "half-a-file" else text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
