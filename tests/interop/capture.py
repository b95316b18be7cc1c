"""What the peer's own orchestrator launches for a recipe, as facts: flags and variables of each worker process.

    python tests/interop/capture.py PEER_CLONE OUT_FOLDER RECIPE.yaml...

Needs an environment in which the peer (srt-slurm, schema 1) can be imported. `srun` and `scontrol` on PATH are fakes:
the fake `srun` really runs the wrapper that the peer wrote for the node, and the `python3` or `vllm` it ends in writes
down its own argv and environment instead of starting an engine. So nothing here is computed by us; addresses of nodes
become `<node N>`, the output folder `<output>`. A schema-2 recipe goes through the peer's own normaliser first, which
is read from the file that PEER_ROLES names.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

FAKE_SRUN = """#!{python}
import os, subprocess, sys
words = sys.argv[1:]
joined = " ".join(words).replace("--nodelist=", "--nodelist ").split()
node = joined[joined.index("--nodelist") + 1]
number = int(node.rsplit("-", 1)[1])
wrapper = words[words.index("-c") + 1]
if "vllm" not in wrapper:
    print("10.9.9.%d" % (number + 1))
    sys.exit(0)
clean = {{"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "CAPTURE_NODE": str(number),
          "CAPTURE_FOLDER": os.environ["CAPTURE_FOLDER"]}}
subprocess.run(["bash", "-c", wrapper], env=clean, check=False)
"""
FAKE_ENGINE = """#!{python}
import json, os, sys, tempfile
if "dynamo.vllm" in sys.argv or os.path.basename(sys.argv[0]) == "vllm":
    handle, name = tempfile.mkstemp(dir=os.environ["CAPTURE_FOLDER"], suffix=".json")
    with os.fdopen(handle, "w") as stream:
        json.dump({{"argv": [os.path.basename(sys.argv[0])] + sys.argv[1:], "env": dict(os.environ)}}, stream)
elif "-c" in sys.argv:
    print(os.environ["HOME"])
"""
FAKE_SCONTROL = """#!/bin/sh
echo "$3" | tr ',' '\\n'
"""
LATER_BENCHMARK_KEYS = ("endpoint", "backend")
"""Keys that recipes published later have; the load generator reads them, the workers never see them."""
NOISE = {"PATH", "HOME", "PWD", "OLDPWD", "SHLVL", "_", "CAPTURE_NODE", "CAPTURE_FOLDER", "LC_CTYPE"}


def main(peer: Path, out: Path, recipes: list[Path]) -> None:
    """Capture each recipe into one file of `out`."""
    commit = subprocess.run(
        ["git", "-C", str(peer), "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    sys.path.insert(0, str(peer / "src"))
    for recipe in recipes:
        for data in variants(yaml.safe_load(recipe.read_text())):
            facts = {"peer": "NVIDIA/srt-slurm", "commit": commit, "recipe": data["name"], **captured(data)}
            (out / f"{data['name']}.json").write_text(compact(facts))
            print(f"{data['name']}: {sum(len(role['processes']) for role in facts['roles'].values())} processes")


def variants(data: dict[str, Any]) -> list[dict[str, Any]]:
    """What the peer makes of one file: each override and each point of a sweep is a recipe of its own."""
    from srtctl.core.config import generate_override_configs
    from srtctl.core.sweep import generate_sweep_configs

    if "base" in data:
        return [config for _, config in generate_override_configs(data)]
    if "sweep" in data:
        return [config for config, _ in generate_sweep_configs(data)]
    return [data]


def captured(data: dict[str, Any]) -> dict[str, Any]:
    """Run the peer's worker stage for one recipe under fake Slurm."""
    from srtctl.core.config import load_config

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "recipe.yaml"
        path.write_text(yaml.safe_dump(normalised(data), sort_keys=False))
        config = load_config(path)
        nodes = config.resources.total_nodes
        tools = fakes(folder)
        os.environ.update(
            PATH=f"{tools}:{os.environ['PATH']}",
            HOME=str(folder / "home"),
            CAPTURE_FOLDER=str(folder / "seen"),
            SLURM_JOB_ID="777",
            SLURM_NODELIST=",".join(f"node-{number}" for number in range(nodes)),
            SRTCTL_OUTPUT_DIR=str(folder / "out"),
        )
        launch(config)
        seen = [json.loads(file.read_text()) for file in (folder / "seen").iterdir()]
    return {"nodes": nodes, "roles": by_role(seen, str(folder / "out"))}


def normalised(data: dict[str, Any]) -> dict[str, Any]:
    """A schema-2 recipe in the peer's inner form, by the peer's own code; a schema-1 one as it is."""
    for name in LATER_BENCHMARK_KEYS:
        data.get("benchmark", {}).pop(name, None)
    if data.pop("schema", 1) == 1:
        return data
    spec = importlib.util.spec_from_file_location("peer_roles", os.environ["PEER_ROLES"])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return dict(module.expand_roles(data))


def fakes(folder: Path) -> Path:
    """The fake programs, in a folder for the front of PATH."""
    tools = folder / "bin"
    for made in (tools, folder / "home", folder / "seen"):
        made.mkdir()
    for name, text in (
        ("srun", FAKE_SRUN), ("python3", FAKE_ENGINE), ("vllm", FAKE_ENGINE), ("scontrol", FAKE_SCONTROL),
        ("pip", "#!/bin/sh\n"), ("python", FAKE_ENGINE),
    ):  # fmt: skip
        (tools / name).write_text(text.format(python=sys.executable) if "{python}" in text else text)
        (tools / name).chmod(0o755)
    return tools


def launch(config: Any) -> None:
    """The peer's worker stage, and a wait until every step has ended."""
    from srtctl.cli.do_sweep import SweepOrchestrator
    from srtctl.core.runtime import RuntimeContext

    workers = SweepOrchestrator(config, RuntimeContext.from_config(config, "777")).start_all_workers()
    for worker in workers.values():
        worker.popen.wait(timeout=120)


def by_role(seen: list[dict[str, Any]], output: str) -> dict[str, Any]:
    """Captured processes in order: what all of a role share once, the rest per process."""
    roles: dict[str, list[dict[str, Any]]] = {}
    for one in seen:
        words = [late(word, output) for word in one["argv"]]
        env = {name: late(value, output) for name, value in one["env"].items() if name not in NOISE}
        role = words[words.index("--disaggregation-mode") + 1] if "--disaggregation-mode" in words else "agg"
        roles.setdefault(role, []).append(
            {"node": int(one["env"]["CAPTURE_NODE"]), "words": grouped(words), "env": dict(sorted(env.items()))}
        )
    return {role: shared(sorted(found, key=_place)) for role, found in sorted(roles.items())}


def _place(process: dict[str, Any]) -> tuple[int, str]:
    devices = [group for group in process["words"] if group[0] == "--device-ids"]
    return process["node"], str(devices)


def late(text: str, output: str) -> str:
    """A text with what differs from run to run replaced by its name."""
    text = text.replace(output, "<output>")
    return re.sub(
        r"10\.9\.9\.(\d+)", lambda match: f"<node {int(match[1]) - 1}>", re.sub(r"\bnode-(\d+)\b", r"<node \1>", text)
    )


def grouped(words: list[str]) -> list[list[str]]:
    """A command line as a list of flags, each with the words that follow it; the program first."""
    groups: list[list[str]] = [[]]
    for word in words:
        if word.startswith("--"):
            groups.append([])
        groups[-1].append(word)
    return groups


def shared(processes: list[dict[str, Any]]) -> dict[str, Any]:
    """The processes of one role without repeating what all of them have."""
    flags = [group for group in processes[0]["words"] if all(group in one["words"] for one in processes)]
    env = {
        name: value
        for name, value in processes[0]["env"].items()
        if all(one["env"].get(name) == value for one in processes)
    }
    return {
        "flags": flags,
        "env": env,
        "processes": [
            {
                "node": one["node"],
                "flags": [group for group in one["words"] if group not in flags],
                "env": {name: value for name, value in one["env"].items() if name not in env},
            }
            for one in processes
        ],
    }


def compact(facts: dict[str, Any]) -> str:
    """JSON with one flag, variable and process per line."""
    roles = facts["roles"]
    lines = [f"  {json.dumps(name)}: {json.dumps(value)}," for name, value in facts.items() if name != "roles"]
    lines.append('  "roles": {')
    for number, (role, found) in enumerate(roles.items()):
        lines += [f"    {json.dumps(role)}: {{", '      "flags": [']
        lines.append(",\n".join(f"        {json.dumps(group)}" for group in found["flags"]))
        lines += ["      ],", '      "env": {']
        lines.append(",\n".join(f"        {json.dumps(k)}: {json.dumps(v)}" for k, v in found["env"].items()))
        lines += ["      },", '      "processes": [']
        lines.append(",\n".join(f"        {json.dumps(one)}" for one in found["processes"]))
        lines += ["      ]", "    }" + ("," if number < len(roles) - 1 else "")]
    return "\n".join(["{", *lines, "  }", "}", ""])


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), [Path(name) for name in sys.argv[3:]])
