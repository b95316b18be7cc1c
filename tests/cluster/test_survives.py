"""What a run survives: a requeue, a dead controller, a shared folder that hangs, and a full disk once there is room."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pdkit.rack import rack as racks

from ..fakes.engines import make_engines
from .faults import HELD, SETS, TINY, Fault, Faulty, begin, kill, play, step

HANGS_SECONDS = 4
"""Less than the 10 s after which file discovery forgets a worker."""


@dataclass(frozen=True)
class Disk:
    """A small file system that this machine and every node share."""

    place: Path

    def fill(self, *, leave_mib: int = 0) -> None:
        free = os.statvfs(self.place)
        size = free.f_bavail * free.f_frsize - (leave_mib << 20)
        with (self.place / "full").open("ab") as stream:
            os.posix_fallocate(stream.fileno(), 0, size - (1 << 20 if not leave_mib else 0))
            try:
                while not leave_mib:
                    os.write(stream.fileno(), bytes(512))
            except OSError as error:
                assert error.strerror == "No space left on device"  # noqa: PT017  (the purpose)
        os.sync()

    def make_room(self) -> None:
        (self.place / "full").unlink()

    def hang(self, seconds: float) -> None:
        """As a file server that is away: whoever writes waits."""
        subprocess.run(["fsfreeze", "--freeze", self.place], check=True)
        try:
            time.sleep(seconds)
        finally:
            subprocess.run(["fsfreeze", "--unfreeze", self.place], check=True)


@pytest.fixture(scope="module")
def disk(cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Disk]:
    folder = tmp_path_factory.mktemp("disk")
    image, place = folder / "image", folder / "place"
    place.mkdir()
    with image.open("wb") as stream:
        stream.truncate(2 << 30)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", "-E", "nodiscard", image], check=True)
    loop = subprocess.run(["losetup", "--find", "--show", image], text=True, capture_output=True, check=True)
    device = loop.stdout.strip()
    spaces = [[], *(_inside(cluster.config, node) for node in cluster.config.node_names)]
    try:
        for space in spaces:
            subprocess.run([*space, "mount", device, place], check=True)
        yield Disk(place)
    finally:
        for space in reversed(spaces):
            subprocess.run([*space, "umount", "--lazy", place], check=False)
        subprocess.run(["losetup", "--detach", device], check=True)


def _inside(config: racks.RackConfig, node: str) -> list[str]:
    """The words that run a command with the files that a node sees."""
    [slurmd] = [one for one in racks.node_processes(config, node) if one.name == "slurmd"]
    return ["nsenter", f"--target={slurmd.pid}", "--mount"]


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_engines(tmp_path_factory.mktemp("e"))


def requeue(run: Faulty) -> None:
    run.let_go()
    run.cluster.slurm("scontrol", "requeue", run.job)


SLOWLY = {"lies": "gate/decode0:slow=1"}


def test_nothing_is_lost_by_a_requeue_and_a_folder_that_hangs(
    cluster, disk: Disk, engines: Path, tmp_path: Path
) -> None:
    requeues = ("cluster.directives={requeue: true, no-requeue: false}",)
    faults = {
        "requeued": Fault("sweep", requeue, 0, (), sets=requeues, seconds=60),
        "slow": Fault("gate", lambda _: disk.hang(HANGS_SECONDS), 0, (), held=SLOWLY, output=disk.place),
    }
    requeued, slow = play(cluster, engines, tmp_path, faults).values()
    assert (requeued.code, requeued.points()) == (0, [1, 2]), requeued.text()
    assert [event["restart"] for event in requeued.events("job")] == [0, 1], requeued.text()
    told = [(event["concurrency"], event["state"]) for event in requeued.events("point")]
    assert told == [(1, "valid"), (1, "kept"), (2, "valid")]
    assert (requeued.folder / "gate.1.jsonl").exists(), "gated anew"
    assert (slow.code, slow.points()) == (0, [1, 2]), slow.text()
    assert slow.seconds > HANGS_SECONDS


def test_a_full_disk_is_told_and_nothing_is_lost_by_it(
    cluster, pdkit, disk: Disk, engines: Path, tmp_path: Path
) -> None:
    faults = {"full": Fault("gate", lambda _: disk.fill(), 2, (), held=SLOWLY, output=disk.place)}
    [full] = play(cluster, engines, tmp_path, faults).values()
    assert (full.code, full.points()) == (2, []), full.text()
    assert "/gate.jsonl: cannot write the evidence: No space left on device" in full.status.error, full.text()
    assert full.seconds < 30
    assert full.left_running() == []
    for line in (full.folder / "gate.jsonl").read_text().splitlines()[:-1]:
        json.loads(line)  # half a line at most, the last

    # nothing begins on a full disk
    words = [word for one in (*SETS, "name=begins") for word in ("--set", one)]
    command = [sys.executable, "-m", "pdkit.cli", "submit", TINY, "-o", disk.place, *words]
    begins = subprocess.run(command, text=True, capture_output=True, check=False)
    assert (begins.returncode, begins.stderr.count("\n")) == (2, 2), "a sentence and its fix"
    assert "No space left on device" in begins.stderr
    assert list(disk.place.glob("begins-*")) == []
    disk.make_room()
    disk.fill(leave_mib=500)
    small = begin(cluster, engines, tmp_path / "small", output=disk.place)
    cluster.wait_until(lambda: small.status.state == "FAILED", "it has ended")
    assert small.code == 3, small.text()
    assert " GiB are free in the run folder 1 are needed" in small.status.error

    disk.make_room()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{engines / 'bin'}{os.pathsep}{os.environ['PATH']}")
        patch.setenv("PDKIT_RUN_ID", full.run_id)
        assert pdkit("submit", "--resume", full.folder).code == 0
    done = cluster.reach(full.folder, "done", state="COMPLETED", deadline_s=60)
    assert done["points"] == [2, 2]


def test_a_dead_controller_ends_no_run_and_keeps_none_alive(cluster, engines: Path, tmp_path: Path) -> None:
    goes_on = begin(cluster, engines, tmp_path / "goes-on", lies="gate/decode0:slow=1")
    dies = begin(cluster, engines, tmp_path / "dies", lies=HELD["gate"]["lies"])
    for run in (goes_on, dies):
        cluster.wait_until(lambda run=run: run.in_stage("gate"), "the gate has begun")
    head = cluster.config.head
    saved, now = cluster.config.folder / "state" / "job_state", time.time()
    cluster.wait_until(lambda: saved.exists() and saved.stat().st_mtime > now, "slurmctld has saved the jobs")
    [controller] = [one for one in racks.node_processes(cluster.config, head) if one.name == "slurmctld"]
    os.kill(controller.pid, signal.SIGKILL)
    try:
        kill(step("decode0", "dynamo.vllm"))(dies)
        died = time.monotonic()
        # srun tells of no death without a controller: the driver's own words stand
        cluster.wait_until((dies.folder / "result.json").exists, "the cause is told", deadline_s=20)
        told = dies.json("result.json")
        assert told["exit_code"] == 4
        assert "decode0" in told["message"]
        cluster.wait_until((goes_on.folder / "result.json").exists, "the other run has ended", deadline_s=60)
        asked = goes_on.status
        assert (asked.state, asked.stage, asked.points) == ("ENDED", "done", (2, 2)), goes_on.text()
    finally:
        racks.start(cluster.config)
    for run, state in ((goes_on, "COMPLETED"), (dies, "FAILED")):
        cluster.wait_until(lambda run=run, state=state: run.status.state == state, f"{run.folder.name} is {state}")
        cluster.wait_until(lambda run=run: not run.left_running(), "nothing is left running", deadline_s=20)
    assert time.monotonic() - died < 90
    assert (goes_on.code, dies.code) == (0, 4)
    assert "decode0" in dies.status.error
    assert dies.points() == []
