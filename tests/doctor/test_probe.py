"""The probe of the real engines: it agrees with what was read out of their sources, and `check` stands on it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pdkit.commands import planned
from pdkit.doctor.engines import probe_image
from pdkit.launch.run import engines_folder
from pdkit.paths import facts_folder, shipped
from pdkit.render.lock import lock_data

pytestmark = pytest.mark.local
MACHINE = {"mm-processor-device"}
"""Its choices depend on the machine."""
HIDDEN = {"diffusion-config", "quantization-config", "watermark-config"}
"""Their classes are named for type checkers only, so that the running vLLM does not tell their keys."""


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = engines_folder(None)
    if folder is None:
        pytest.skip("no .venv-vllm: make engines")
    file = tmp_path_factory.mktemp("probe") / "facts.json"
    probe_image(folder / "bin" / "python", file)
    return file


def differences(path: str, read: dict[str, Any], probed: dict[str, Any]) -> Iterator[str]:
    for key in sorted((read.keys() | probed.keys()) - {"default"}):
        if key == "keys" and key in read and key in probed:
            for name in sorted(read[key].keys() | probed[key].keys()):
                yield from differences(f"{path}.{name}", read[key].get(name, {}), probed[key].get(name, {}))
        elif read.get(key) != probed.get(key):
            yield f"{path} {key}: {read.get(key)!r:.60} {probed.get(key)!r:.60}"


def test_vllm_says_of_itself_what_was_read_in_its_sources(facts: Path) -> None:
    probed = json.loads(facts.read_text())["vllm"]
    read = json.loads((facts_folder("vllm") / "0.31.json").read_text())
    assert read["flags"].keys() == probed["flags"].keys()
    for name in read["flags"].keys() - MACHINE - HIDDEN:
        found = list(differences(name, read["flags"][name], probed["flags"][name]))
        assert found in ([], ["speculative-config.draft_load_config.load_format type: 'any' 'str'"])
    for kind in ("env", "connectors", "connector_keys"):
        assert read[kind] == probed[kind]
    assert probed["flags"]["max-model-len"]["type"] == "int"
    assert probed["flags"]["gpu-memory-utilization"]["default"] == pytest.approx(0.92)


def test_dynamo_says_of_itself_what_is_shipped(facts: Path) -> None:
    probed = json.loads(facts.read_text())["dynamo"]
    shipped_facts = json.loads((facts_folder("dynamo") / "1.6.json").read_text())
    for part in ("worker", "frontend"):
        assert shipped_facts[part].keys() == probed[part].keys()
    assert probed["connectors"] == shipped_facts["connectors"]
    assert {"DYN_LOG", "DYN_SYSTEM_PORT", "DYN_RUNTIME_"} <= set(probed["env"])


def test_a_recipe_is_checked_against_its_image_and_locked_to_it(facts: Path) -> None:
    recipe = shipped("recipes") / "local" / "tiny_pd.yaml"
    [(_, plan, findings)] = planned(recipe, (f"engine.facts={facts}",))
    assert [one for one in findings if one.severity == "error"] == []
    before = lock_data(plan, "")
    facts.write_text(facts.read_text().replace('"attention-backend"', '"attention-backends"'))
    assert lock_data(plan, "")["digest"] != before["digest"]
    assert before["facts"]["engine"].startswith("sha256:")
    [(_, _, findings)] = planned(recipe, (f"engine.facts={facts}", "common.args.attention-backend=CPU_ATTN"))
    assert [one.code for one in findings if one.severity == "error"] == ["PD016"]
