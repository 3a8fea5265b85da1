"""Scans: the forms beside each other, beside double precision and beside finite differences."""

import functools

import pytest
import torch
from torch import Tensor

from engram.core.errors import EngramError
from engram.nn import scan as module
from engram.nn.gated_scan import GatedScan, gated_scan
from engram.nn.scan import Scan, scan, scan_loop, scan_parallel

FAST = pytest.mark.parametrize("form", [scan, scan_parallel])


def problem(B: int, T: int, H: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    """Gates on both sides, inputs of both signs, and a state to begin with."""
    generator = torch.Generator().manual_seed(B + T + H)
    a, b, h0 = (torch.randn(*shape, generator=generator, dtype=dtype) for shape in ((B, T, H), (B, T, H), (B, H)))
    return torch.sigmoid(3 * a).requires_grad_(), b.requires_grad_(), h0.requires_grad_()


def gradients(h_BTH: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    """Of some mixture of the states."""
    mix = torch.randn(h_BTH.shape, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    return torch.autograd.grad(h_BTH, inputs, mix.to(h_BTH.dtype))


def steps(zn_BT2H: Tensor, h0_BH: Tensor) -> Tensor:
    z_BTH, n_BTH = zn_BT2H.chunk(2, -1)
    return scan_loop(torch.sigmoid(-z_BTH), torch.sigmoid(z_BTH) * n_BTH, h0_BH)


@FAST
@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (2, 2, 3), (3, 7, 5), (2, 64, 16), (1, 33, 200), (2, 50, 257), (3, 5, 512)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_form_computes_what_the_steps_compute(form, shape, dtype):
    inputs = problem(*shape, dtype)
    fast, clear = form(*inputs), scan_loop(*inputs)
    assert fast.dtype == dtype
    torch.testing.assert_close(fast, clear)
    torch.testing.assert_close(gradients(fast, *inputs), gradients(clear, *inputs), atol=2e-5, rtol=1e-5)


def test_the_cpu_uses_the_kernel():
    assert scan(*problem(1, 4, 2)).grad_fn.name().startswith(Scan.__name__)
    assert (
        gated_scan(torch.zeros(1, 4, 6, requires_grad=True), torch.zeros(1, 3))
        .grad_fn.name()
        .startswith(GatedScan.__name__)
    )


@pytest.mark.parametrize("form", [scan, scan_parallel, scan_loop])
def test_derivatives_are_the_finite_differences(form):
    assert torch.autograd.gradcheck(form, problem(2, 5, 3))


def test_on_all_cores_as_on_one(monkeypatch):
    inputs, zn = problem(3, 40, 300, torch.float32), torch.randn(3, 40, 600, requires_grad=True)
    runs = []
    for enough in (1 << 40, 0):
        monkeypatch.setattr(module, "PARALLEL_SIZE", enough)
        monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
        h, gated = scan(*inputs), gated_scan(zn, inputs[2])
        runs.append([h, gated, *gradients(h, *inputs), *gradients(gated, zn, inputs[2])])
    assert all(map(torch.equal, *runs))


@FAST
@pytest.mark.parametrize("gate", [0.0, 1.0, 1 - 1e-8, 1e-8, 1e-38])
def test_gates_at_their_ends(form, gate):
    a, b, h0 = problem(2, 300, 4)
    a = torch.full_like(a, gate).requires_grad_()
    torch.testing.assert_close(form(a, b, h0), scan_loop(a, b, h0))
    torch.testing.assert_close(gradients(form(a, b, h0), a, b, h0), gradients(scan_loop(a, b, h0), a, b, h0))


@FAST
def test_a_gate_that_is_shut_forgets_all_and_one_that_is_open_adds_up(form):
    b = -torch.arange(1.0, 7).view(1, 6, 1)
    assert torch.equal(form(torch.zeros_like(b), b), b)
    assert torch.equal(form(torch.ones_like(b), b), b.cumsum(1))


@functools.cache
def a_hundred_thousand_steps(keep):
    """Gates and inputs in single precision; states and gradients of the loop in double precision."""
    generator = torch.Generator().manual_seed(0)
    a = (keep + (1 - keep) * torch.rand(1, 100_000, 3, generator=generator)).requires_grad_()
    b = ((1.001 - a.detach()) * torch.randn(1, 100_000, 3, generator=generator)).requires_grad_()
    exact = scan_loop(a.double(), b.double())
    return a, b, exact.detach(), gradients(exact, a, b)


@pytest.mark.slow
@FAST
@pytest.mark.parametrize("keep", [0.5, 0.99, 0.9999, 1.0])
@pytest.mark.xdist_group("scan")
def test_a_hundred_thousand_steps(form, keep):
    """Single precision beside the loop in double precision: 1e-5 of the largest state and gradient."""
    a, b, exact, slopes = a_hundred_thousand_steps(keep)
    single = form(a, b)
    assert (single - exact).abs().max() <= 1e-5 * exact.abs().max()
    for mine, theirs in zip(gradients(single, a, b), slopes, strict=True):
        assert (mine - theirs).abs().max() <= 1e-5 * theirs.abs().max()


@FAST
def test_no_time_at_all(form):
    a, b, h0 = problem(2, 0, 3)
    assert form(a, b, h0).shape == (2, 0, 3)
    assert not gated_scan(torch.zeros(2, 0, 6), torch.zeros(2, 3)).numel()


@FAST
def test_memory_in_any_order(form):
    a, b, h0 = problem(4, 6, 5)
    turned = a.detach().permute(2, 1, 0).contiguous().permute(2, 1, 0)
    every_other = torch.stack([b.detach(), b.detach()], -1)[..., 0]
    torch.testing.assert_close(form(turned, every_other, h0.detach().T.contiguous().T), scan_loop(a, b, h0).detach())
    zn = torch.cat([a, b], -1).float()
    torch.testing.assert_close(gated_scan(zn.mT.contiguous().mT, h0.float()), gated_scan(zn, h0.float()))
    h = form(a, b, h0)
    (all_the_same,) = torch.autograd.grad(h.sum(), b)  # of which the slope is one number, spread out
    torch.testing.assert_close(all_the_same, torch.autograd.grad(scan_loop(a, b, h0).sum(), b)[0])


def test_half_precision_is_added_up_in_single():
    a, b, h0 = (x.detach().bfloat16() for x in problem(2, 500, 4))
    h = scan(a, b, h0)
    assert h.dtype == torch.bfloat16
    torch.testing.assert_close(h, scan_loop(a.float(), b.float(), h0.float()).bfloat16())


@pytest.mark.parametrize("form", [scan, scan_parallel, scan_loop])
def test_derivatives_have_derivatives(form):
    assert torch.autograd.gradgradcheck(form, problem(2, 4, 3))


def test_derivatives_of_the_gated_scan_have_derivatives():
    zn, h0 = torch.randn(2, 5, 6, requires_grad=True), torch.randn(2, 3, requires_grad=True)
    second = []
    for form in (gated_scan, steps):
        slopes = torch.autograd.grad(form(zn, h0).square().sum(), (zn, h0), create_graph=True)
        second.append(torch.autograd.grad(sum(slope.square().sum() for slope in slopes), (zn, h0)))
    torch.testing.assert_close(*second, atol=1e-4, rtol=1e-4)


def test_what_does_not_fit_is_refused():
    a, b, h0 = problem(2, 3, 4)
    with pytest.raises(EngramError, match="B × T × H"):
        scan(a[:, :2], b, h0)
    with pytest.raises(EngramError, match="B × H"):
        scan(a, b, h0[:1])
    with pytest.raises(EngramError, match="one type of number"):
        scan(a.float(), b, h0)
    with pytest.raises(EngramError, match="2H"):
        gated_scan(torch.zeros(2, 3, 5), torch.zeros(2, 2))


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 9, 5), (3, 20, 131), (1, 4, 256)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_gated_scan_computes_what_the_steps_compute(shape, dtype):
    B, T, H = shape
    zn = torch.randn(B, T, 2 * H, generator=torch.Generator().manual_seed(0), dtype=dtype).mul(4).requires_grad_()
    h0 = torch.randn(B, H, generator=torch.Generator().manual_seed(1), dtype=dtype).requires_grad_()
    fast, clear = gated_scan(zn, h0), steps(zn.double(), h0.double())
    torch.testing.assert_close(fast.double(), clear, atol=2e-6, rtol=1e-6)
    for mine, theirs in zip(gradients(fast, zn, h0), gradients(clear, zn, h0), strict=True):
        torch.testing.assert_close(mine, theirs, atol=5e-6, rtol=1e-5)


def test_the_gate_over_the_whole_line():
    """1 - g has its own digits: h is what is left of 1 after a step in which the proposal is 0."""
    z = torch.linspace(-85, 85, 5001)
    h = gated_scan(torch.cat([z, torch.zeros_like(z)])[None, None], torch.ones(1, 5001))
    torch.testing.assert_close(h[0, 0].double(), torch.sigmoid(-z.double()), atol=0, rtol=5e-7)
    ends = torch.tensor([[[-1e4, -1e30, -torch.inf, 1e4, 1e30, torch.inf, *[2.0] * 6]]])
    torch.testing.assert_close(gated_scan(ends, torch.ones(1, 6)), torch.tensor([[[1.0, 1, 1, 2, 2, 2]]]))


def test_what_is_not_a_number_is_not_hidden():
    zn = torch.zeros(1, 3, 4)
    zn[0, 1, 0] = torch.nan
    assert gated_scan(zn, torch.zeros(1, 2)).isnan().tolist() == [[[False, False], [True, False], [True, False]]]


@pytest.mark.slow
def test_the_gated_scan_over_a_hundred_thousand_steps():
    zn = torch.randn(1, 100_000, 4, generator=torch.Generator().manual_seed(0)).mul(3).requires_grad_()
    h0 = torch.zeros(1, 2)
    exact, single = steps(zn.double(), h0.double()), gated_scan(zn, h0)
    assert (single - exact).abs().max() <= 1e-5 * exact.abs().max()
    mine, theirs = gradients(single, zn)[0], gradients(exact, zn)[0]
    assert (mine - theirs).abs().max() <= 1e-5 * theirs.abs().max()
