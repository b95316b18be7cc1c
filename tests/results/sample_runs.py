"""Run folders with invented figures, for the report's tests and for looking at it.

    python tests/results/sample_runs.py FOLDER      writes run folders and a report into FOLDER

The plans are real ones of recipes/qwen38/pairs; every measured figure comes from the small formula below.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pdkit.files import write_json
from pdkit.paths import shipped
from pdkit.plan.contract import plan_data
from pdkit.plan.plan import make_plan
from pdkit.recipe.load import load
from pdkit.results.imported import read_imported
from pdkit.results.points import Acceptance, Latency, Point, Spread, write_point
from pdkit.results.report import build_report

PAIRS = {
    "1xtep8-1xtep8": ((1, 2, 4, 8, 16, 32), 4.6, 0.13),
    "1xtp4dp2-1xtep8": ((1, 4, 8, 16, 32, 64), 5.2, 0.105),
    "1xtp2dp4-1xtp4dp4": ((64, 128, 256), 9.5, 0.05),
    "2xtp2dp4-1xtp4dp4": ((64, 128, 256, 512), 9.4, 0.036),
    "4xtp2dp4-1xtp4dp4": ((256, 512, 1024), 9.6, 0.024),
}
"""Recipe: concurrencies, TPOT in ms of a single user, and how much each further user adds."""

PUBLISHED = """# invented, to show a curve beside one's own
label,tok_s_gpu,tok_s_user,concurrency
another rack,520,150,8
another rack,1450,98,64
another rack,3100,41,512
another rack,3900,22,1024
"""


def latency(p50: float, *, tail: float) -> Latency:
    return Latency(mean_ms=p50 * (1 + tail / 8), p50_ms=p50, p90_ms=p50 * (1 + tail / 2), p99_ms=p50 * (1 + tail))


def point(concurrency: int, gpus: dict[str, int], single_ms: float, each_ms: float, **changes: Any) -> Point:
    tpot = latency(single_ms + each_ms * concurrency**0.93, tail=0.18)
    ttft = latency(310 + 2600 * concurrency / (gpus["prefill"] * 9), tail=1.1)
    e2e = latency(ttft.p50_ms + 1023 * tpot.p50_ms, tail=0.2)
    output = concurrency * 1024 / e2e.mean_ms * 1000 * 0.97
    total = output * 9
    held = sum(gpus.values())
    values: dict[str, Any] = {
        "concurrency": concurrency,
        "valid": not changes.get("invalid_reasons"),
        "notes": ("MTP 3 ran on random tokens: acceptance on real text differs",),
        "random_tokens_with_mtp": True,
        "isl_asked": 8192,
        "osl_asked": 1024,
        "isl_measured": 8206.0,
        "osl_measured": 1024.0,
        "requests": 8 * concurrency,
        "completed": 8 * concurrency,
        "errors": 0,
        "duration_seconds": 8 * e2e.mean_ms / 1000,
        "in_flight_mean": concurrency * 0.97,
        "in_flight_peak": concurrency,
        "total_tok_s": total,
        "output_tok_s": output,
        "gpus": held,
        "gpus_by_role": gpus,
        "total_tok_s_gpu": total / held,
        "output_tok_s_gpu": output / held,
        "total_tok_s_gpu_by_role": {role: total / count for role, count in gpus.items()},
        "output_tok_s_gpu_by_role": {role: output / count for role, count in gpus.items()},
        "tok_s_user_mean": 1000 / tpot.mean_ms,
        "tok_s_user_median": 1000 / tpot.p50_ms,
        "tok_s_user_p90": 1000 / tpot.p90_ms,
        "ttft": ttft,
        "tpot": tpot,
        "itl": latency(tpot.p50_ms * 2.4, tail=0.6),
        "e2e": e2e,
        "acceptance": Acceptance(rate=0.46, length=2.38, source="engine counters"),
        "spread": Spread(
            output_tok_s=(output * 0.99, output, output * 1.006),
            tpot_mean_ms=(tpot.mean_ms * 1.01, tpot.mean_ms, tpot.mean_ms * 0.995),
            output_tok_s_relative=0.016,
        ),
        "client_core_share": min(0.9, 0.02 + concurrency / 1500),
        "tool": "vllm-bench",
        "tool_version": "0.26.1rc1.dev1177+ga9a17e709",
        "gate_digest": "sha256:" + "9a" * 32,
        "lock_digest": "sha256:" + "4c" * 32,
        "boot_ids": ("prefill0-1f2e", "decode0-77ab"),
    }
    return Point.model_validate(values | changes)


def gate(*, correct: int, passed: bool, words: str) -> dict[str, Any]:
    share = correct / 1319
    return {
        "schema": 1,
        "passed": passed,
        "words": words,
        "header": {
            "protocol": "chat-cot",
            "concurrency": 64,
            "max_tokens": 8192,
            "limits": {"questions": 1319, "floor": 0.94, "scored_by": "flexible"},
        },
        "verdict": {
            "answered": 1319,
            "correct": correct,
            "accuracy": share,
            "wilson_low": max(0.0, share - 0.012),
            "wilson_high": share + 0.011,
            "truncated": 3,
            "empty": 0,
            "failed": 0,
            "twin": {"pairs": 1319, "twin_accuracy": 0.9538, "lost": 9, "gained": 8, "p_drop": 0.5}
            if passed
            else {"pairs": 1319, "twin_accuracy": 0.9538, "lost": 1251, "gained": 0, "p_drop": 1e-300},
        },
        "gate_digest": "sha256:" + "9a" * 32,
    }


def run_folder(
    parent: Path, recipe: str, concurrencies: tuple[int, ...], *, decode_block: int | None = None
) -> tuple[Path, dict[str, Any]]:
    """A run folder up to ready; returns it with its plan."""
    sets = (f"workload.concurrency={list(concurrencies)}",)
    (loaded,) = load(shipped("recipes") / "qwen38" / "pairs" / f"{recipe}.yaml", sets)
    plan = plan_data(make_plan(loaded), [])
    folder = parent / f"{plan['recipe']}-{plan['digest'][7:15]}-1"
    write_json(folder / "plan.json", plan)
    write_json(
        folder / "lock.json",
        {
            "digest": "sha256:" + "4c" * 32,
            "pdkit": "0.1.0",
            "image": "vllm/vllm-openai:nightly-a9a17e7095a66ef6c6685a1c7ddd657781a78d3c",
            "engine": {"vllm": "0.26.1rc1.dev1177+ga9a17e709", "dynamo": "1.2.0.dev20260526"},
        },
    )
    engines = []
    for name, role in plan["roles"].items():
        block_gib = role["page_bytes"] * role["kv"]["group_layers"] / 2**30
        size = decode_block if name == "decode" and decode_block else role["block_size"]
        for number in range(role["endpoints"] * role["ranks"]):
            said = {
                "name": f"{name}{number}",
                "role": name,
                "block_size": size,
                "rank": str(number % role["ranks"]),
                "kv_blocks": int(role["memory"]["kv_cache_gib"] * (0.992 - 0.001 * number) / block_gib),
                "kv_tokens": 1_000_000,
                "max_concurrency": role["max_concurrency"]["per_rank"] * 0.99,
            }
            engines.append(said)
    checks = [
        {"name": name, "ok": True, "expected": expected, "seen": seen, "engine": engine}
        for name, expected, seen, engine in (
            ("registered", "prefill0, decode0", "prefill0, decode0", ""),
            ("block size", "2176", "2176", "prefill0"),
            ("block size", "2176", "2176", "decode0"),
            ("prompt tokens by KV transfer", "more than 0", "188 (decode0)", "decode0"),
            ("failed transfers", "0", "0 (decode0)", "decode0"),
        )
    ]
    write_json(folder / "ready.json", {"schema": 1, "ready": True, "engines": engines, "checks": checks, "message": ""})
    return folder, plan


def make_samples(parent: Path) -> list[Path]:
    """Five measured runs (one with an invalid point), one that failed at the gate, one that never became ready."""
    folders = []
    for recipe, (concurrencies, single_ms, each_ms) in PAIRS.items():
        folder, plan = run_folder(parent, recipe, concurrencies)
        write_json(
            folder / "gate.json",
            gate(correct=1257, passed=True, words="1257 of 1319 right, 95.30 % (95 % interval 94.02 % to 96.31 %)"),
        )
        gpus = {name: role["gpus_per_endpoint"] * role["endpoints"] for name, role in plan["roles"].items()}
        for concurrency in concurrencies:
            changes: dict[str, Any] = {}
            if concurrency == 1024:
                reason = "2 of 8192 requests failed (the first: ServerDisconnectedError: Server disconnected)"
                changes = {"invalid_reasons": (reason,), "errors": 2, "completed": 8190}
            write_point(folder, point(concurrency, gpus, single_ms, each_ms, **changes))
        folders.append(folder)
    failed, _ = run_folder(parent, "1xtep8-1xtp4dp4", (64, 128), decode_block=4352)
    write_json(failed / "gate.json", gate(correct=6, passed=False, words="accuracy 0.45 % is below the floor 94.00 %"))
    stuck, _ = run_folder(parent, "1xtp2dp4-1xtep8", (8, 16))
    (stuck / "ready.json").unlink()
    write_json(
        stuck / "result.json",
        {
            "schema": 1,
            "exit_code": 5,
            "stage": "ready",
            "message": "registered: expected all engines within 1800 s, seen missing decode0\n  fix: see its log",
        },
    )
    return [*folders, failed, stuck]


def believed(_run: Path) -> dict[int, str]:
    """The audit of these runs: their figures are invented, and stand on nothing."""
    return {}


def main() -> None:
    parent = Path(sys.argv[1])
    csv = parent / "published.csv"
    parent.mkdir(parents=True, exist_ok=True)
    csv.write_text(PUBLISHED, encoding="utf-8")
    build_report(make_samples(parent / "runs"), read_imported(csv), parent / "report.html", believed)


if __name__ == "__main__":
    main()
