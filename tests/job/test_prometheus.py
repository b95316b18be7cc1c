"""Prometheus pages as Dynamo's workers write them, and as the format allows them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
import requests

from pdkit.job.prometheus import Sample, parse_page, read_page, total

# seen on vLLM 0.31 behind Dynamo 1.6.1, two DP ranks; shortened
PAGE = """\
# HELP dynamo_component_uptime_seconds Total uptime of the DistributedRuntime in seconds
# TYPE dynamo_component_uptime_seconds gauge
dynamo_component_uptime_seconds 49.482082309
# HELP vllm:nixl_bytes_transferred Histogram of bytes transferred per NIXL KV Cache transfers.
# TYPE vllm:nixl_bytes_transferred histogram
vllm:nixl_bytes_transferred_bucket{dynamo_component="backend",engine="0",le="2.097152e+06",model="tiny"} 2.0
vllm:nixl_bytes_transferred_bucket{dynamo_component="backend",engine="0",le="+Inf",model="tiny"} 3.0
vllm:nixl_bytes_transferred_sum{dynamo_component="backend",engine="0",model="tiny"} 917504.0
vllm:nixl_bytes_transferred_sum{dynamo_component="backend",engine="1",model="tiny"} 1.31072e+06
# TYPE vllm:prompt_tokens_by_source_total counter
vllm:prompt_tokens_by_source_total{engine="0",model="tiny",source="local_compute"} 0.0
vllm:prompt_tokens_by_source_total{engine="1",model="tiny",source="local_compute"} 257.0
vllm:prompt_tokens_by_source_total{engine="0",model="tiny",source="external_kv_transfer"} 630.0
vllm:prompt_tokens_by_source_total{engine="1",model="tiny",source="external_kv_transfer"} 850.0
# TYPE vllm:prompt_tokens_by_source_created gauge
vllm:prompt_tokens_by_source_created{engine="0",model="tiny",source="external_kv_transfer"} 1.7959784321228137e+09
vllm:cache_config_info{block_size="128",engine="0",kv_cache_dtype_skip_layers="[]",num_gpu_blocks="1024"} 1.0
"""


def one(line: str) -> Sample:
    (sample,) = parse_page(line)
    return sample


def test_a_real_page_is_read() -> None:
    samples = parse_page(PAGE)
    assert len(samples) == 11
    assert samples[0] == Sample("dynamo_component_uptime_seconds", {}, 49.482082309)
    assert samples[-1].labels["num_gpu_blocks"] == "1024"
    assert samples[-1].labels["kv_cache_dtype_skip_layers"] == "[]"


def test_totals_are_of_one_name_and_all_given_labels() -> None:
    samples = parse_page(PAGE)
    name = "vllm:prompt_tokens_by_source_total"
    assert total(samples, name, source="external_kv_transfer") == 1480
    assert total(samples, name, source="external_kv_transfer", engine="1") == 850
    assert total(samples, name) == 1737
    assert total(samples, "vllm:prompt_tokens_by_source") == 0
    assert total(samples, name, source="elsewhere") == 0
    assert total(samples, "vllm:nixl_bytes_transferred_sum") == 917504 + 1310720


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("a, b", "a, b"),
        ("{x}", "{x}"),
        ("} 5 ", "} 5 "),
        ("#", "#"),
        ("a=1", "a=1"),
        (r"say \"hi\"", 'say "hi"'),
        (r"C:\\new", "C:\\new"),
        (r"two\nlines", "two\nlines"),
        ("", ""),
        ("Straße", "Straße"),
    ],
)
def test_label_values_may_hold_anything(written: str, meant: str) -> None:
    sample = one(f'name{{first="{written}",second="x"}} 7')
    assert sample == Sample("name", {"first": meant, "second": "x"}, 7.0)


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("name 7", 7.0),
        ("name{} -0.5", -0.5),
        ("name 1.5e-3 1795978432000", 0.0015),  # with a timestamp
        ('name_bucket{le="1"} 5 # {trace_id="abc"} 0.67 1795978432.1', 5.0),  # with an exemplar
        ("name\t+Inf", math.inf),
        ("name -Inf", -math.inf),
        ("name 1.7959784321228137E+09", 1795978432.1228137),
        ("name .5", 0.5),
        ("name 5.", 5.0),
    ],
)
def test_values_in_every_form(line: str, value: float) -> None:
    assert one(line).value == value


def test_nan_is_a_value() -> None:
    assert math.isnan(one("name NaN").value)


@pytest.mark.parametrize(
    "line",
    ["", "# HELP name text", "#name 5", "name", "name{", 'name{a="b"', "name five", "<html>", "5 name", "name 1.2.3"],
)
def test_a_line_that_is_no_sample_is_left_out(line: str) -> None:
    assert [sample.name for sample in parse_page(f"before 1\n{line}\nafter 2\n")] == ["before", "after"]


@pytest.fixture
def server() -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/metrics" else 500)
            self.end_headers()
            self.wfile.write(PAGE.encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{http.server_address[1]}"
        http.shutdown()
        thread.join()


def test_a_page_is_read_from_an_engine_or_is_an_error(server: str) -> None:
    assert read_page(f"{server}/metrics") == parse_page(PAGE)
    with pytest.raises(requests.HTTPError, match="500"):
        read_page(f"{server}/broken")
    with pytest.raises(requests.ConnectionError):
        read_page("http://127.0.0.1:1/metrics")
