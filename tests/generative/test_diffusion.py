"""Diffusion: the schedule against its definition, samplers with an exact score, predictions against each other."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.integrate import solve_ivp

from engram.core.errors import EngramError
from engram.core.seeding import generator
from engram.generative.diffusion import samplers
from engram.generative.diffusion.model import Diffusion, build_schedule
from engram.generative.diffusion.samplers import NoiseSchedule, SamplerContext
from engram.generative.diffusion.unet import DenoiserConfig, PointDenoiser, UNet

MEANS, WEIGHTS, SPREAD = torch.tensor([-1.2, 0.3, 1.0]).double(), torch.tensor([0.3, 0.5, 0.2]).double(), 0.15


def config(**changes):
    return Diffusion.Config(**{"shape": (1,), "center": 0.0, "scale": 1.0, **changes})


def exact(schedule: NoiseSchedule):
    """x_0 for x_t where x_0 is one of three Gaussians on a line: the mean of the posterior, in closed form."""

    def denoise(x, t):
        a, s = schedule.at(t) if isinstance(t, int) else schedule.levels_like(x, t)
        variance = a**2 * SPREAD**2 + s**2
        share = torch.softmax(WEIGHTS.log() - (x - a * MEANS).square() / (2 * variance), -1)
        each = MEANS + a * SPREAD**2 / variance * (x - a * MEANS)
        return (share * each).sum(-1, keepdim=True)

    return denoise


def true_sample(count, seed=7):
    random = np.random.default_rng(seed)
    piece = random.choice(3, size=count, p=WEIGHTS.numpy())
    return MEANS.numpy()[piece] + SPREAD * random.standard_normal(count)


# ---------------------------------------------------------------------- forward process


@pytest.mark.parametrize("noise_schedule", ["linear", "cosine", "log-snr"])
def test_schedules_are_products_of_single_steps(noise_schedule):
    """(2) from (1): variance grows step by step."""
    schedule = build_schedule(config(noise_schedule=noise_schedule))
    a, variance = 1.0, 0.0
    for t in range(1, schedule.last + 1):
        alpha = (schedule.at(t)[0] / schedule.at(t - 1)[0]) ** 2
        a, variance = a * math.sqrt(alpha), variance * alpha + (1 - alpha)
        assert schedule.at(t)[0] == pytest.approx(a, rel=1e-9)
        assert schedule.at(t)[1] ** 2 == pytest.approx(variance, rel=1e-6)
    assert schedule.at(0) == (1.0, 0.0)
    assert schedule.at(schedule.last)[0] < 0.05


def test_linear_schedule_has_the_betas_of_the_paper():
    schedule = build_schedule(config(noise_schedule="linear"))
    beta = [1 - (schedule.at(t)[0] / schedule.at(t - 1)[0]) ** 2 for t in (1, 1000)]
    assert beta == pytest.approx([1e-4, 0.02], rel=1e-6)


def test_the_log_snr_schedule_passes_its_knots():
    schedule = build_schedule(config(noise_schedule="log-snr", log_snr_knots=(6.0, 1.0, -5.0), timesteps=100))
    assert [2 * schedule.half_log_snr(t) for t in (50, 100)] == pytest.approx([1.0, -5.0])


def test_added_noise_has_the_right_moments():
    schedule = build_schedule(config())
    x_0 = torch.full((40_000, 1), 2.0)
    x_t = schedule.add_noise(x_0, torch.full((40_000,), 300), torch.randn(40_000, 1, generator=generator(0)))
    a, s = schedule.at(300)
    assert x_t.mean().item() == pytest.approx(2 * a, abs=0.01)
    assert x_t.std().item() == pytest.approx(s, rel=0.02)


# ---------------------------------------------------------------------- samplers with an exact denoiser


@pytest.mark.parametrize(
    ("kind", "steps", "furthest"),
    [("ddpm", 1000, 0.03), ("ddim", 20, 0.08), ("dpm-solver-2", 10, 0.04), ("langevin", 50, 0.03)],
)
@pytest.mark.parametrize("noise_schedule", ["linear", "cosine"])
def test_with_the_exact_score_samplers_reach_the_distribution(kind, steps, furthest, noise_schedule):
    schedule = build_schedule(config(noise_schedule=noise_schedule))
    x_T = torch.randn(4000, 1, generator=generator(1), dtype=torch.float64)
    *_, end = samplers.sample(kind, SamplerContext(exact(schedule), schedule, generator(2)), x_T, steps)
    assert end.t == 0
    distance = stats.wasserstein_distance(end.x[:, 0].numpy(), true_sample(40_000))
    assert distance < furthest


def ode(schedule, x_T, begin, end):
    """Where the probability flow leads, by an adaptive solver, in the angle of which a is the cosine."""
    angle = torch.atan2(schedule.s, schedule.a)

    def slope(phi, x):
        a, s = math.cos(phi), math.sin(phi)
        variance = a**2 * SPREAD**2 + s**2
        x = torch.from_numpy(x)[:, None]
        share = torch.softmax(WEIGHTS.log() - (x - a * MEANS).square() / (2 * variance), -1)
        x_0 = (share * (MEANS + a * SPREAD**2 / variance * (x - a * MEANS))).sum(-1)
        e = (x[:, 0] - a * x_0) / s
        return (a * e - s * x_0).numpy()  # x = cos x_0 + sin e: its derivative is the velocity

    span = (angle[begin].item(), angle[end].item())
    return solve_ivp(slope, span, x_T[:, 0].numpy(), method="DOP853", rtol=1e-9, atol=1e-9).y[:, -1]


def test_dpm_solver_is_of_second_order_and_ddim_of_first():
    schedule = build_schedule(config(noise_schedule="cosine", timesteps=20_000))
    x_T = torch.randn(50, 1, generator=generator(3), dtype=torch.float64)

    def error(kind, steps):
        trajectory = list(samplers.sample(kind, SamplerContext(exact(schedule), schedule, generator(0)), x_T, steps))
        begin, end = trajectory[0].t, trajectory[-2].t  # before the last step, which leads to time 0 at once
        return np.abs(trajectory[-2].x[:, 0].numpy() - ode(schedule, x_T, begin, end)).mean()

    assert error("ddim", 100) / error("ddim", 200) == pytest.approx(2, rel=0.25)
    assert error("dpm-solver-2", 100) / error("dpm-solver-2", 200) == pytest.approx(4, rel=0.35)
    assert error("dpm-solver-2", 20) < error("ddim", 40)


def test_the_ddpm_step_is_that_of_the_paper():
    schedule = build_schedule(config(noise_schedule="linear"))
    t = 400
    beta = 1 - (schedule.at(t)[0] / schedule.at(t - 1)[0]) ** 2
    abar, before = schedule.at(t)[0] ** 2, schedule.at(t - 1)[0] ** 2
    x, x_0 = torch.randn(6, 1, dtype=torch.float64), torch.randn(6, 1, dtype=torch.float64)
    e = (x - math.sqrt(abar) * x_0) / math.sqrt(1 - abar)
    z = torch.randn(6, 1, dtype=torch.float64, generator=generator(5))
    sigma = math.sqrt(beta * (1 - before) / (1 - abar))
    expected = (x - beta / math.sqrt(1 - abar) * e) / math.sqrt(1 - beta) + sigma * z
    found = samplers.ddpm(x, x_0, t, t - 1, SamplerContext(None, schedule, generator(5)))
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_a_long_ddpm_step_is_the_posterior():
    """q(x_r | x_t, x_0) is Gaussian with known moments, however far apart the times are."""
    schedule = build_schedule(config())
    t, r, x_0, x_t = 700, 200, 0.8, -0.4
    (a_t, s_t), (a_r, s_r) = schedule.at(t), schedule.at(r)
    alpha = a_t / a_r
    mean = (alpha * s_r**2 * x_t + a_r * (1 - alpha**2) * x_0) / s_t**2
    variance = (1 - alpha**2) * s_r**2 / s_t**2
    many = torch.full((200_000, 1), x_t, dtype=torch.float64)
    found = samplers.ddpm(many, torch.full_like(many, x_0), t, r, SamplerContext(None, schedule, generator(0)))
    assert found.mean().item() == pytest.approx(mean, abs=0.005)
    assert found.var().item() == pytest.approx(variance, rel=0.02)


def test_inpainting_keeps_what_is_known_and_fills_in_what_goes_with_it():
    """Two coordinates of a Gaussian with correlation 0.9: given the first, the second has a known mean and spread."""
    schedule = build_schedule(config())
    covariance = torch.tensor([[1.0, 0.9], [0.9, 1.0]], dtype=torch.float64)

    def denoise(x, t):
        a, s = schedule.at(t)
        return x @ (a * covariance @ torch.linalg.inv(a**2 * covariance + s**2 * torch.eye(2, dtype=torch.float64)))

    known = torch.tensor([[1.0, 0.0]], dtype=torch.float64).expand(3000, 2)
    mask = torch.tensor([True, False]).expand(3000, 2)
    *_, end = samplers.inpaint(SamplerContext(denoise, schedule, generator(0)), known, mask, 60, 6)
    torch.testing.assert_close(end.x[:, 0], known[:, 0])
    assert end.x[:, 1].mean().item() == pytest.approx(0.9, abs=0.1)
    assert end.x[:, 1].std().item() == pytest.approx(math.sqrt(1 - 0.81), rel=0.35)


@pytest.mark.parametrize("kind", ["ddpm", "ddim", "dpm-solver-2", "langevin"])
def test_trajectories_begin_at_the_noise_and_end_at_time_0(kind):
    schedule = build_schedule(config(timesteps=50))
    x_T = torch.randn(3, 1, dtype=torch.float64)
    trajectory = list(samplers.sample(kind, SamplerContext(exact(schedule), schedule, generator(0)), x_T, 7))
    assert torch.equal(trajectory[0].x, x_T)
    assert [one.t for one in trajectory] == sorted({one.t for one in trajectory}, reverse=True)
    assert trajectory[0].t == (50 if kind != "dpm-solver-2" else 48)  # where a twentieth can be seen
    assert trajectory[-1].t == 0
    with pytest.raises(EngramError, match="at least one step"):
        list(samplers.sample(kind, SamplerContext(exact(schedule), schedule, generator(0)), x_T, 0))


# ---------------------------------------------------------------------- the model


class ExactNetwork(torch.nn.Module):
    """A network that predicts what the exact denoiser implies."""

    def __init__(self, model):
        super().__init__()
        self.config, self.schedule = model.config, model.schedule

    def forward(self, x, time, label):
        t_B = (time * self.config.timesteps).round().long()
        a, s = self.schedule.levels_like(x.double(), t_B)
        x_0 = exact(self.schedule)(x.double(), t_B)
        e = (x - a * x_0) / s
        return {"x0": x_0, "noise": e, "velocity": a * e - s * x_0}[self.config.prediction].float()


class FunctionNetwork(torch.nn.Module):
    """A network that is a given function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, time, label):
        return self.function(x, label)


@pytest.mark.parametrize("prediction", ["noise", "velocity", "x0"])
def test_all_predictions_say_the_same_of_x_0(prediction):
    model = Diffusion(config(prediction=prediction))
    model.network = ExactNetwork(model)
    x = torch.randn(20, 1)
    for t in (1, 300, 900):
        torch.testing.assert_close(
            model.denoise(x, t).double(), exact(model.schedule)(x.double(), t), rtol=1e-3, atol=1e-3
        )


@pytest.mark.parametrize("prediction", ["noise", "velocity", "x0"])
def test_the_loss_of_the_exact_prediction_is_zero(prediction):
    """The targets of all predictions are consistent."""
    model = Diffusion(config(prediction=prediction))
    x, t, e = torch.randn(9, 1), torch.randint(1, 1001, (9,)), torch.randn(9, 1)
    truth = {"noise": e, "x0": x, "velocity": model.schedule.add_noise(e, t, -x)}[prediction]
    model.network = FunctionNetwork(lambda u, label: truth)
    assert model.loss(x, t, e).abs().max() < 1e-10


def test_bound_is_nearly_the_likelihood_where_the_denoiser_is_exact():
    model = Diffusion(
        config(noise_schedule="log-snr", log_snr_knots=(10.0, -10.0))
    )  # small steps everywhere, so that little is lost
    model.network = ExactNetwork(model)
    x = torch.from_numpy(true_sample(2000)).float()[:, None]
    density = sum(w * stats.norm.pdf(x.numpy(), m, SPREAD) for w, m in zip(WEIGHTS.numpy(), MEANS.numpy(), strict=True))
    found = np.mean([model.variational_bound(x, generator(i)).mean().item() for i in range(8)])
    truth = -np.log(density).mean()
    assert truth - 0.02 < found < truth + 0.05


def test_score_points_to_where_things_are():
    model = Diffusion(config())
    model.network = ExactNetwork(model)
    x = torch.tensor([[-3.0], [3.0]])
    a, s = model.schedule.at(400)
    at = torch.linspace(-4, 4, 20_001).double()
    log_p = torch.logsumexp(WEIGHTS.log() - (at[:, None] - a * MEANS).square() / (2 * (a**2 * SPREAD**2 + s**2)), -1)
    slope = torch.gradient(log_p, spacing=(at,))[0]
    near = (at[None] - x.double()).abs().argmin(1)
    torch.testing.assert_close(model.score(x, 400)[:, 0].double(), slope[near], rtol=0.01, atol=0.01)


def test_remove_noise_reduces_the_error():
    model = Diffusion(config())
    model.network = ExactNetwork(model)
    x = torch.from_numpy(true_sample(500)).float()[:, None]
    noisy = x + 0.3 * torch.randn(x.shape, generator=generator(0))
    cleaned = model.remove_noise(noisy, 0.3, generator(1))
    assert (cleaned - x).square().mean() < 0.7 * (noisy - x).square().mean()
    assert torch.equal(model.remove_noise(x, 0.0, generator(1)), x)


def test_guidance_goes_further_in_the_direction_of_the_class():
    model = Diffusion(config(classes=2, prediction="x0"))
    model.network = FunctionNetwork(lambda u, label: torch.full_like(u, 0.5 if label is None else 0.8))
    u, label = torch.randn(3, 1), torch.tensor([0, 1, 0])
    assert model.denoise(u, 100, label, guidance=2.0) == pytest.approx(0.5 + 3 * 0.3)
    assert model.denoise(u, 100, label) == pytest.approx(0.8)


def test_unknown_classes_are_refused():
    with pytest.raises(EngramError, match="not trained on classes"):
        Diffusion(config()).sample(2, generator(0), label_B=torch.tensor([0, 1]))
    with pytest.raises(EngramError, match="from 0 to 2"):
        Diffusion(config(classes=3)).sample(1, generator(0), label_B=torch.tensor([3]))


# ---------------------------------------------------------------------- the networks


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 17, 10), (1, 8, 8)])
def test_unet_keeps_the_shape_and_starts_near_zero(shape):
    net = UNet(DenoiserConfig(shape=shape, channels=(8, 16), heads=2, classes=3))
    x, t = torch.randn(2, *shape), torch.rand(2)
    assert net(x, t).shape == x.shape
    assert net(x, t, torch.tensor([0, 2])).abs().max() < 1  # only the bias of the last layer
    for weight in net.parameters():
        torch.nn.init.normal_(weight, std=0.1)
    assert not torch.allclose(net(x, t), net(x, t + 0.3))
    assert not torch.allclose(net(x, t, torch.tensor([0, 0])), net(x, t, torch.tensor([1, 1])))
    torch.testing.assert_close(net(x, t, torch.tensor([-1, -1])), net(x, t))


def test_unet_sees_all_places():
    """A pixel of one corner has a say in the opposite one."""
    net = UNet(DenoiserConfig(shape=(1, 16, 16), channels=(8, 16), heads=2))
    for weight in net.parameters():
        torch.nn.init.normal_(weight, std=0.2)
    x = torch.randn(1, 1, 16, 16, requires_grad=True)
    (slope,) = torch.autograd.grad(net(x, torch.tensor([0.5]))[0, 0, 0, 0], x)
    assert slope[0, 0, -1, -1] != 0


def test_the_point_denoiser_depends_on_the_time():
    net = PointDenoiser(DenoiserConfig(shape=(2,), hidden=16))
    torch.nn.init.normal_(net.output.weight)
    x = torch.randn(5, 2)
    assert not torch.allclose(net(x, torch.full((5,), 0.1)), net(x, torch.full((5,), 0.9)))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("channels", (10,)),
        ("channels", ()),
        ("heads", 3),
        ("patch", 0),
        ("timesteps", 1),
        ("log_snr_knots", (0.0, 1.0)),
    ],
)
def test_bad_settings_are_named(field, value):
    with pytest.raises(EngramError, match=field):
        config(**{field: value})
