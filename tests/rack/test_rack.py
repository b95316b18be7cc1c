"""The rack at work: its nodes, what Slurm refuses, what a job sees, what is recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from pdkit.errors import ClusterError
from pdkit.rack import rack as racks
from pdkit.rack.config import RackConfig
from pdkit.rack.containers import Mount, container_requests

FOUR_NODES = ("--nodes=4", "--segment=4", "--gres=gpu:4", "--exclusive", "--time=5")


def test_eighteen_nodes_are_idle(slurm) -> None:
    states = racks.status(slurm.config)
    assert [state.name for state in states] == list(slurm.config.node_names)
    assert len(states) == 18
    assert all(state.state == "idle" and state.plugged and state.processes >= 1 for state in states)
    listing = slurm.run("sinfo", "--noheader", "--partition=batch", "--format=%D %G %c %m").stdout.split()
    assert listing == ["18", "gpu:gb300:4", "144", "950000"]


def test_starting_again_changes_nothing(slurm) -> None:
    def pids() -> set[int]:
        return {one.pid for name in slurm.config.namespaces for one in racks.node_processes(slurm.config, name)}

    before = pids()
    racks.start(slurm.config)
    assert pids() == before


def test_a_fitting_job_is_accepted(slurm) -> None:
    script = slurm.folder / "job.sh"
    script.write_text("#!/bin/bash\n#SBATCH " + " ".join(FOUR_NODES) + "\ntrue\n")
    done = slurm.run("sbatch", "--test-only", script)
    assert done.returncode == 0, done.stderr
    assert "576 processors" in done.stderr
    assert slurm.run("squeue", "--noheader", "--states=pending,running").stdout == ""


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ("--nodes=19", 1, "Node count specification invalid"),
        ("--nodes=4 --segment=3", 1, "4 nodes are not a multiple of 3"),
        ("--segment=19", 255, "19 nodes do not fit the block of 18"),
        ("--segment=0", 255, "Invalid --segment specification"),
        ("--segment=four", 255, "Invalid --segment specification"),
        ("--segmnt=4", 255, "unrecognized option '--segmnt=4'"),
        ("--container-imge=x", 255, "unrecognized option '--container-imge=x'"),
        ("--gres=gpu:5", 1, "Requested node configuration is not available"),
        ("--partition=nope", 1, "Invalid partition name specified"),
        ("--account=nobody", 1, "Invalid account or account/partition combination specified"),
        ("--time=10:00:00", 1, "Requested time limit is invalid"),
        ("--partition=debug --time=20", 1, "Requested time limit is invalid"),
        ("--container-image=", 255, "--container-image: argument required"),
        ("--container-mounts=data:/data", 255, "mount source must be"),
        ("--container-mounts=/data:data", 255, "mount target must be"),
        ("--container-mounts=/data:", 255, "invalid format"),
        ("--container-mounts=/a:/b:readonly", 255, "unknown mount flag: readonly"),
        ("--container-name=a:now", 255, "flag must be"),
        ("--container-unshare=pid", 255, "unknown namespace 'pid'"),
        ("--container-save=/tmp/", 255, "target is a directory"),
        ("--container-writable --container-readonly", 255, "both --container-writable and --container-readonly"),
        ("--container-mount-home --no-container-mount-home", 255, "both --container-mount-home and"),
    ],
)
def test_a_wrong_job_is_refused_at_submission(slurm, options: str, code: int, said: str) -> None:
    script = slurm.folder / "job.sh"
    script.write_text("#!/bin/bash\ntrue\n")
    for dry in (["--test-only"], []):
        done = slurm.run("sbatch", *dry, *options.split(), script)
        assert done.returncode == code, (dry, done.stdout, done.stderr)
        assert said in done.stderr


@pytest.mark.parametrize("options", ["--nodes=8 --segment=4", "--nodes=4 --segment=8", "--account=perf", "--segment=1"])
def test_a_right_option_is_accepted(slurm, options: str) -> None:
    script = slurm.folder / "job.sh"
    script.write_text("#!/bin/bash\ntrue\n")
    done = slurm.run("sbatch", "--test-only", *options.split(), script)
    assert done.returncode == 0, done.stderr


def test_four_steps_run_on_four_nodes_in_their_containers(slurm) -> None:
    (slurm.folder / "data").mkdir()
    (slurm.folder / "data" / "model").write_text("weights")
    target = f"/{slurm.config.name}-mount"
    job = slurm.submit(
        f"""
        mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
        steps=()
        for index in 0 1 2 3; do
          srun --overlap --nodes=1 --ntasks=1 --nodelist="${{nodes[index]}}" \\
            --container-image="nvcr.io#nvidia/engine:$index" --no-container-mount-home --container-remap-root \\
            --container-mounts="{slurm.folder}/data:{target}/data:ro,/etc/hosts:{target}/hosts" \\
            --container-workdir={target} \\
            bash -c 'echo "$SLURM_STEP_ID $(hostname) $CUDA_VISIBLE_DEVICES $PWD $(cat data/model)"
                     touch data/new 2>/dev/null && echo writable
                     getent hosts "$(hostname)" >/dev/null || echo unresolvable' &
          steps+=($!)
        done
        for step in "${{steps[@]}}"; do wait "$step" || echo "step failed with $?"; done
        """,
        *FOUR_NODES,
    )
    assert slurm.wait(job) == "COMPLETED", slurm.output(job)
    lines = [line.split(maxsplit=1) for line in slurm.output(job).splitlines()]
    nodes = slurm.config.node_names[:4]
    assert sorted(rest for _, rest in lines) == [f"{node} 0,1,2,3 {target} weights" for node in nodes]

    asked = container_requests(slurm.config, job=job)
    assert {request.node for request in asked} == set(nodes)
    assert len(asked) == 4
    said = {step: rest.split()[0] for step, rest in lines}
    for request in asked:
        # The record and the task itself must tell the same story.
        assert said[request.step] == request.node
        assert request.image == f"nvcr.io#nvidia/engine:{nodes.index(request.node)}"
        assert request.mounts == (
            Mount(source=f"{slurm.folder}/data", target=f"{target}/data", flags="ro"),
            Mount(source="/etc/hosts", target=f"{target}/hosts", flags=""),
        )
        assert (request.workdir, request.mount_home, request.remap_root) == (target, False, True)
        assert request.writable is None
    # The mounts were the tasks' own; only their mountpoints are left, until the rack stops.
    assert sorted(path.name for path in Path(target).iterdir()) == ["data", "hosts"]
    assert not list((Path(target) / "data").iterdir())


def test_each_task_of_a_node_gets_its_gpu(slurm) -> None:
    job = slurm.submit(
        "srun --ntasks-per-node=4 --gpus-per-task=1 bash -c 'echo $(hostname) $SLURM_LOCALID $CUDA_VISIBLE_DEVICES'",
        "--nodes=2",
        "--gres=gpu:4",
        "--ntasks-per-node=4",
    )
    assert slurm.wait(job) == "COMPLETED", slurm.output(job)
    expected = [f"{node} {index} {index}" for node in slurm.config.node_names[:2] for index in range(4)]
    assert sorted(slurm.output(job).splitlines()) == expected


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--container-image=/no/such.sqsh", "no such image file: /no/such.sqsh"),
        ("--container-image=./relative.sqsh", "no such image file: ./relative.sqsh"),
        ("--container-image=x --container-mounts=/no/such:/data", "source path does not exist: /no/such"),
        ("--container-image=x --container-workdir=/no/such", "couldn't chdir to /no/such"),
    ],
)
def test_a_container_that_cannot_start_fails_its_step(slurm, options: str, said: str) -> None:
    done = slurm.run("srun", "--nodes=1", *options.split(), "true")
    assert done.returncode == 1, done.stderr
    assert said in done.stderr


def test_an_image_missing_on_one_node_fails_there_only(slurm) -> None:
    image = slurm.config.local_disk / "engine.sqsh"
    (slurm.config.folder / "disk" / slurm.config.node_names[1] / "engine.sqsh").write_text("image")
    codes = {
        node: slurm.run("srun", "--nodes=1", f"--nodelist={node}", f"--container-image={image}", "true").returncode
        for node in slurm.config.node_names[:2]
    }
    assert list(codes.values()) == [1, 0]


def test_options_of_sbatch_reach_its_steps(slurm) -> None:
    job = slurm.submit("srun true", "--container-image=from-sbatch", "--container-env=A,B", "--container-writable")
    assert slurm.wait(job) == "COMPLETED", slurm.output(job)
    asked = container_requests(slurm.config, job=job)
    assert [request.step for request in asked] == ["batch", "0"]
    assert {(request.image, request.env, request.writable) for request in asked} == {("from-sbatch", "A,B", True)}


def test_two_nodes_listen_on_one_port_and_hear_one_another(slurm) -> None:
    (slurm.folder / "server.py").write_text(
        "import socket, sys\n"
        "server = socket.create_server(('0.0.0.0', 8000))\n"
        "while True:\n"
        "    peer, _ = server.accept()\n"
        "    peer.sendall(socket.gethostname().encode())\n"
        "    peer.close()\n"
    )
    (slurm.folder / "client.py").write_text(
        "import socket, sys, time\n"
        "for node in sys.argv[1:]:\n"
        "    for _ in range(100):\n"
        "        try:\n"
        "            print(node, socket.create_connection((node, 8000), 5).recv(99).decode())\n"
        "            break\n"
        "        except ConnectionRefusedError:\n"
        "            time.sleep(0.1)\n"
    )
    job = slurm.submit(
        """
        mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
        for node in "${nodes[@]}"; do srun --overlap -N1 -n1 -w "$node" python3 server.py & done
        python3 client.py "${nodes[@]}"
        """,
        "--nodes=3",
    )
    assert slurm.wait(job) == "COMPLETED", slurm.output(job)
    said = [line for line in slurm.output(job).splitlines() if line.startswith(slurm.config.name)]
    assert said == [f"{node} {node}" for node in slurm.config.node_names[:3]], slurm.output(job)


def test_a_node_has_its_own_interfaces_and_shared_memory(slurm) -> None:
    first, second = slurm.config.node_names[:2]
    job = slurm.submit(
        f"""
        srun --overlap -N1 -n1 -w {first} bash -c 'ls /sys/class/net; echo x > /dev/shm/mine; ipcmk -M 4096 >/dev/null'
        srun --overlap -N1 -n1 -w {first} ls /dev/shm/mine
        srun --overlap -N1 -n1 -w {second} bash -c 'find /dev/shm -name mine; ipcs -m | grep -c ^0x || true'
        """,
        "--nodes=2",
    )
    assert slurm.wait(job) == "COMPLETED"
    assert slurm.output(job).split() == ["eth0", "lo", "/dev/shm/mine", "0"]


def test_another_rack_is_kept_out(slurm, new_rack) -> None:
    def twin(**settings: object) -> RackConfig:
        return RackConfig(folder=new_rack().folder, **settings)

    with pytest.raises(ClusterError, match="another rack is called"):
        racks.start(twin(name=slurm.config.name, subnet="10.79.250"))
    with pytest.raises(ClusterError, match="already reaches") as caught:
        racks.start(twin(name="other", subnet=slurm.config.subnet))
    assert "--subnet" in str(caught.value.fix)
    assert not list(Path("/run/netns").glob("other-*"))
    with pytest.raises(ClusterError, match="runs with other settings"):
        racks.start(RackConfig(folder=slurm.config.folder, name=slurm.config.name, subnet=slurm.config.subnet, nodes=4))
    assert all(state.up for state in racks.status(slurm.config))
