"""What the rack does when something dies, and what a stopped rack leaves behind: nothing."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from pdkit.errors import ClusterError, UsageError
from pdkit.rack import rack as racks
from pdkit.rack.process import Process

# A task with two children, one of them in a session of its own, as an engine has.
ENGINE = "sleep 1111 & setsid sleep 1112 & exec -a engine sleep 1113"


def step_on(slurm, node: str) -> tuple[int, Process]:
    """Start a job of two nodes with ENGINE on `node`; return the job and the engine's main process."""
    job = slurm.submit(
        f"srun --overlap -N1 -n1 -w {node} bash -c '{ENGINE}'; echo step ended with $?; sleep 1110",
        "--nodes=2",
        "--no-requeue",
    )
    end = time.monotonic() + 30
    while time.monotonic() < end:
        for one in tasks(slurm, node):
            if one.command[0] == "engine" and len(tasks(slurm, node)) == 3:
                return job, one
        time.sleep(0.1)
    raise AssertionError(racks.node_processes(slurm.config, node))


def tasks(slurm, node: str) -> list[Process]:
    return [one for one in racks.node_processes(slurm.config, node) if not one.name.startswith("slurm")]


def test_a_killed_engine_is_seen_and_leaves_no_orphan(slurm, wait_until) -> None:
    node = slurm.config.node_names[1]
    job, engine = step_on(slurm, node)
    assert len(tasks(slurm, node)) == 3
    os.kill(engine.pid, signal.SIGKILL)
    took = wait_until(lambda: "step ended with 137" in slurm.output(job), "srun saw the death", deadline_s=10)
    assert took < 5
    assert f"error: {node}: task 0: Killed" in slurm.output(job)
    wait_until(lambda: not tasks(slurm, node), "no orphan", deadline_s=10)
    assert slurm.state(job) == "RUNNING"


def test_a_killed_node_fails_its_job(slurm, wait_until) -> None:
    node = slurm.config.node_names[1]
    job, _ = step_on(slurm, node)
    racks.kill_node(slurm.config, node)
    assert racks.node_processes(slurm.config, node) == []
    assert slurm.wait(job, deadline_s=60) == "NODE_FAIL"
    state = next(state for state in racks.status(slurm.config) if state.name == node)
    assert (state.state, state.reason, state.plugged, state.processes) == ("down*", "Not responding", False, 0)
    racks.start_node(slurm.config, node)
    wait_until(lambda: all(state.up for state in racks.status(slurm.config)), "the node is back")


def test_an_unplugged_node_fails_its_job_but_lives_on(slurm, wait_until) -> None:
    node = slurm.config.node_names[1]
    job, engine = step_on(slurm, node)
    racks.unplug_node(slurm.config, node)
    assert slurm.wait(job, deadline_s=60) == "NODE_FAIL"
    assert engine.pid in {one.pid for one in racks.node_processes(slurm.config, node)}
    racks.plug_node(slurm.config, node)
    wait_until(lambda: all(state.up for state in racks.status(slurm.config)), "the node is back")
    wait_until(lambda: not tasks(slurm, node), "the lost job's tasks are ended")


def test_a_dead_controller_comes_back_with_its_jobs(slurm, wait_until) -> None:
    node = slurm.config.node_names[1]
    job, engine = step_on(slurm, node)
    saved = slurm.config.folder / "state" / "job_state"
    now = time.time()
    wait_until(lambda: saved.exists() and saved.stat().st_mtime > now, "slurmctld has saved the running job")
    for daemon in racks.node_processes(slurm.config, slurm.config.head):
        os.kill(daemon.pid, signal.SIGKILL)
    assert slurm.run("squeue", "--noheader").returncode == 1
    racks.start(slurm.config)
    assert slurm.state(job) == "RUNNING"
    assert engine.pid in {one.pid for one in racks.node_processes(slurm.config, node)}


def test_a_drained_node_is_named_at_start(slurm) -> None:
    node = slurm.config.node_names[4]
    slurm.run("scontrol", "update", f"nodename={node}", "state=drain", "reason=cable")
    with pytest.raises(ClusterError, match=f"{node} is drained .cable.") as caught:
        racks.start(slurm.config)
    assert caught.value.fix == f"scontrol update nodename={node} state=resume"
    slurm.run(*str(caught.value.fix).split())
    racks.start(slurm.config)


def test_a_stopped_rack_leaves_nothing(new_rack, tmp_path: Path) -> None:
    config = new_rack(nodes=2)
    racks.start(config)
    target = Path(f"/{config.name}-mount/deep")
    everywhere = {**os.environ, **racks.environment(config)}
    mounts = f"--container-mounts={tmp_path}:{target}"
    subprocess.run(["srun", "-N2", "--container-image=x", mounts, "true"], env=everywhere, check=True)
    script = f"#!/bin/bash\nsrun bash -c '{ENGINE}'\n"
    subprocess.run(["sbatch", "-N2", "--output=/dev/null"], env=everywhere, check=True, input=script, text=True)
    while sum(one.name == "sleep" for name in config.node_names for one in racks.node_processes(config, name)) < 6:
        assert all(state.state in ("idle", "allocated", "mixed") for state in racks.status(config))
    assert target.is_dir()
    pids = {one.pid for name in config.namespaces for one in racks.node_processes(config, name)}

    racks.stop(config)
    alive = {pid for pid in pids if Path(f"/proc/{pid}").exists() and Path(f"/proc/{pid}/cmdline").read_bytes()}
    assert alive == set()
    assert not list(Path("/run/netns").glob(f"{config.name}-*"))
    assert not Path(f"/sys/class/net/{config.name}").exists()
    assert not list(Path("/sys/fs/cgroup").glob(f"freezer/slurm_{config.name}-*"))
    assert not target.parent.exists()
    mounted = Path("/proc/self/mountinfo").read_text()
    assert str(config.folder) not in mounted
    assert config.name not in mounted
    assert [state.state for state in racks.status(config)] == ["off", "off"]
    with pytest.raises(ClusterError, match="does not run"):
        racks.kill_node(config, config.node_names[0])
    racks.stop(config)

    racks.start(config)
    left = subprocess.run(["squeue", "--noheader", "--states=pending,running"], env=everywhere, check=True, text=True)
    assert not left.stdout
    racks.stop(config, wipe=True)
    assert not config.folder.exists()


def test_a_folder_of_something_else_is_not_taken(new_rack) -> None:
    config = new_rack()
    (config.folder / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match=r"holds thesis\.tex"):
        racks.start(config)
    racks.stop(config, wipe=True)
    assert (config.folder / "thesis.tex").exists()


def test_settings_may_change_between_two_runs(new_rack, wait_until) -> None:
    config = new_rack(nodes=3)
    racks.start(config)
    racks.stop(config)
    smaller = dataclasses.replace(config, nodes=1, gpus_per_node=1, name=f"{config.name}b", proctrack="pgid")
    racks.start(smaller)
    assert [state.state for state in racks.status(smaller)] == ["idle"]
    environment = {**os.environ, **racks.environment(smaller)}
    job = ["srun", "--gres=gpu:1", "bash", "-c", "sleep 1111 & echo $CUDA_VISIBLE_DEVICES; kill -9 $$"]
    done = subprocess.run(job, env=environment, text=True, capture_output=True, timeout=30, check=False)
    assert (done.returncode, done.stdout) == (137, "0\n"), done.stderr
    node = smaller.node_names[0]
    wait_until(lambda: [one.name for one in racks.node_processes(smaller, node)] == ["slurmd"], "no orphan")
    # The folder, not the settings in hand, says what runs there.
    racks.stop(config)
    assert not list(Path("/run/netns").glob(f"{config.name}*"))
