"""The tokenizer of played engines: a token is a character, so that any random prompt of a load tool stays as it is.

A trained tokenizer would merge random tokens anew; a load tool then tries ten times for each prompt to get its length.
"""

from __future__ import annotations

import json
import string
from typing import Any

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_PLAIN = string.ascii_letters + string.digits + string.punctuation + " \n"
_BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
"""For all other characters; marked as special, so that load tools draw none of them."""
CONTEXT = 2**20
_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def model_files() -> dict[str, str]:
    """The files of a model folder without weights: what Dynamo's frontend and a load tool read."""
    eos = SPECIAL.index("<|im_end|>")
    config = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "eos_token_id": eos,
        "max_position_embeddings": CONTEXT,
        "vocab_size": len(_vocabulary()),
    }
    tokenizer = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": CONTEXT,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "additional_special_tokens": ["<|im_start|>", *_BYTES],
    }
    files = {
        "config.json": config,
        "generation_config.json": {"eos_token_id": eos},
        "tokenizer.json": _tokenizer(),
        "tokenizer_config.json": tokenizer,
    }
    return {**{name: json.dumps(content) for name, content in files.items()}, "chat_template.jinja": _TEMPLATE}


def _vocabulary() -> dict[str, int]:
    return {token: number for number, token in enumerate((*SPECIAL, *_PLAIN, *_BYTES))}


def _tokenizer() -> dict[str, Any]:
    """In the format of the `tokenizers` library."""
    vocabulary = _vocabulary()
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": vocabulary[token], "content": token, **flags} for token in (*SPECIAL, *_BYTES)],
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": vocabulary,
            "merges": [],
        },
    }
