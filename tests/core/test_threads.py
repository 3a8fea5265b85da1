"""Kernels run on as many threads as torch does, and leave that number as it is."""

import ast
import json
from pathlib import Path

import numba
import pytest
import torch

import engram
from tests.conftest import python

SOURCE = Path(engram.__file__).parent
KERNELS = {
    "nn/gated_scan.py": """
        from engram.nn.gated_scan import gated_scan
        x, h = torch.rand(8, 512, 512, requires_grad=True), torch.rand(8, 256, requires_grad=True)
        gated_scan(x, h).sum().backward()""",
    "nn/linear.py": """
        from engram.nn.linear import Linear
        with torch.no_grad():
            Linear(512, 512)(torch.rand(1, 512))""",
    "generation/fused_decode.py": """
        from engram.transformers.gpt.model import GPT
        GPT(GPT.Config(layers=1, width=64, heads=2)).eval().generate([[1, 2, 3]], 4)""",
    "generation/quantized_product.py": """
        from engram.generation.quantization import QuantizedLinear, quantize_weight
        with torch.no_grad():
            layer = QuantizedLinear(quantize_weight(torch.rand(512, 512), 4))
            layer(torch.rand(8, 512))
            layer.dequantize()""",
    "nn/scan.py": """
        from engram.nn.scan import scan
        a, b = torch.rand(8, 512, 256, requires_grad=True), torch.rand(8, 512, 256)
        scan(a, b).sum().backward()""",
    "nn/spiking.py": """
        from engram.nn.spiking import Leaky, leaky
        spikes, _ = leaky(torch.rand(64, 512, requires_grad=True), Leaky(), steps=5)
        spikes.sum().backward()""",
    "neurons/kernels.py": """
        from engram.neurons.hodgkin_huxley.model import HodgkinHuxley
        neuron = HodgkinHuxley(HodgkinHuxley.Config(neurons=512))
        neuron.step(neuron.init_state(), torch.full((200, 512), 10.0, dtype=torch.float64))""",
    "neurons/lif/model.py": """
        from engram.neurons.lif.model import LIF
        neuron = LIF(LIF.Config(neurons=1000))
        neuron(torch.full((1000, 1000), 1.5, dtype=torch.float64))
        neuron.simulate_constant_input(torch.full((1000,), 1.5, dtype=torch.float64), 100.0)""",
}
"""work that calls every parallel kernel of a file, in the forms in which it is split among threads"""
CHECK = """
import json, os, sys, textwrap, torch, numba
from engram.core import threads
calls, match = [], threads.match_torch_threads
def record():
    match()
    calls.append(numba.get_num_threads())
threads.match_torch_threads = record
def check(file, work):
    for number in (None, 1, 2, 1):
        if number:
            torch.set_num_threads(number)
        before, calls[:] = torch.get_num_threads(), []
        exec(work, {"torch": torch})
        print(json.dumps([file, before, torch.get_num_threads(), sorted(set(calls))]), flush=True)
for file, work in json.loads(sys.argv[1]).items():
    if not os.fork():
        check(file, textwrap.dedent(work))
        os._exit(0)
    assert os.wait()[1] == 0, file
"""
"""each file in a fork of a process in which no kernel has run"""


def parallel_kernels(file: Path) -> list[str]:
    """The functions of a file that are compiled to run on several threads."""
    found = []
    for node in ast.walk(ast.parse(file.read_text())):
        for decorator in getattr(node, "decorator_list", []):
            words = ast.unparse(decorator)
            assert "parallel=True" not in words or file.name == "threads.py", f"{file}: use parallel_njit"
            found += [node.name] if words.startswith("parallel_njit") else []
    return found


def test_every_parallel_kernel_is_tried_here():
    assert KERNELS.keys() == {str(file.relative_to(SOURCE)) for file in SOURCE.rglob("*.py") if parallel_kernels(file)}


@pytest.mark.slow
@pytest.mark.parametrize("environment", [1, 2])
def test_no_kernel_changes_the_number_of_torch_s_threads(environment, monkeypatch):
    """Whether that number comes from the environment or was set, before the first kernel and after it."""
    monkeypatch.setenv("OMP_NUM_THREADS", str(environment))
    ended = python(CHECK, json.dumps(KERNELS))
    assert ended.returncode == 0, ended.stderr
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    expected = [(file, number) for file in KERNELS for number in (environment, 1, 2, 1)]
    assert [(file, before) for file, before, _, _ in lines] == expected
    for file, before, after, used in lines:
        assert after == before, file
        assert used == [min(before, numba.config.NUMBA_NUM_THREADS)] or (before == 1 and used == []), file


@pytest.mark.slow
def test_products_are_the_same_bits_before_and_after_the_first_kernel():
    code = """
import torch
a, b = torch.randn(300, 700), torch.randn(700, 500)
before = a @ b
exec(__import__("textwrap").dedent(__import__("sys").argv[1]))
print(torch.equal(before, a @ b))
"""
    assert python(code, KERNELS["nn/spiking.py"]).stdout == "True\n"


def test_this_process_is_as_it_was():
    assert torch.get_num_threads() == 1
