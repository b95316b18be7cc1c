"""Stands in for the driver: does what the test tells it by files in the run folder, and leaves what a driver leaves.

`told.jsonl`: one line per act, an event to emit or `{"end": CODE, "message": …}`; read on and on.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from pdkit.files import write_json
from pdkit.job.events import emit


def finish(folder: Path, code: int, message: str) -> None:
    write_json(folder / "result.json", {"schema": 1, "exit_code": code, "stage": "gate", "message": message})
    emit(folder, "failed" if code else "done", exit_code=code, message=message)
    sys.exit(code)


def main() -> None:
    folder = Path(sys.argv[1])
    token = os.environ.get("HF_TOKEN", "")
    print(f"driver of {os.environ.get('SLURM_JOB_ID', 'this machine')}", flush=True)
    print(f"HF_TOKEN={token}", flush=True)
    (folder / "seen.json").write_text(json.dumps({"token": token, "partition": os.environ.get("SLURM_JOB_PARTITION")}))

    def interrupted(_number: int, _frame: object) -> None:
        (folder / "kept.json").write_text("{}")
        finish(folder, 8, "stopped by SIGTERM; what was finished is kept")

    signal.signal(signal.SIGTERM, interrupted)
    told = folder / "told.jsonl"
    done = 0
    while True:
        lines = told.read_text().splitlines() if told.exists() else []
        for line in lines[done:]:
            act = json.loads(line)
            if "end" in act:
                finish(folder, act["end"], act["message"])
            emit(folder, act.pop("event"), **act)
        done = len(lines)
        time.sleep(0.1)


main()
