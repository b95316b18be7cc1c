"""The rack's stack on this machine: Dynamo, vLLM and NIXL answer right, and wrong when block sizes differ."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import LAPTOP, Stack, Worker

pytestmark = pytest.mark.local

NO_PREFIX_CACHE = "--no-enable-prefix-caching"
"""As in published recipes; a decode cache would also hide most of the prompt from the transfer."""


@pytest.fixture(scope="module", params=["dense", "hybrid"])
def stack(request: pytest.FixtureRequest, engines: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Frontend and prefill worker, started once per model; the tests bring the decode worker."""
    stack = Stack(LAPTOP / "models" / request.param, tmp_path_factory.mktemp(request.param))
    with stack.frontend(), stack.worker("prefill", 128):
        yield stack


def test_equal_block_sizes_answer_right_and_the_kv_really_moves(stack: Stack) -> None:
    with stack.worker("decode", 128, NO_PREFIX_CACHE) as decode:
        stack.wait_for_answer()
        scores = {protocol: stack.ask(protocol) for protocol in ("chat-cot", "completions-5shot")}
        assert transferred_tokens(decode) > 32 * (scores["chat-cot"].shortest_prompt - 1)
        assert decode.counter("vllm:nixl_num_failed_transfers_total") == 0
    for protocol, score in scores.items():
        assert min(score.strict, score.flexible) >= 0.95, (protocol, score)
        assert score.shortest_prompt > 128, (protocol, score)
    stack.wait_for_no_model()


def test_decode_blocks_of_256_beside_128_answer_garbage_with_http_200(stack: Stack) -> None:
    with stack.worker("decode", 256, NO_PREFIX_CACHE) as decode:
        stack.wait_for_answer()
        score = stack.ask("chat-cot")  # fails itself on any status but 200
        assert transferred_tokens(decode) > 0
        assert decode.counter("vllm:nixl_num_failed_transfers_total") == 0
    assert max(score.strict, score.flexible) < 0.2, score
    stack.wait_for_no_model()


def transferred_tokens(decode: Worker) -> float:
    """Prompt tokens whose KV came from the prefill engine."""
    return decode.counter("vllm:prompt_tokens_by_source_total", source="external_kv_transfer")
