"""Augmentation against slow references that do one image at a time."""

import pytest
import torch

from engram.core.errors import EngramError
from engram.data import Augment, augment


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


@pytest.fixture
def batch():
    return torch.rand(16, 3, 9, 7, generator=torch.Generator().manual_seed(1))


def rolled(image, down, right):
    """The reference: roll, then blacken what came round the edge."""
    moved = image.roll((down, right), (-2, -1))
    moved[..., range(down) if down > 0 else range(down, 0), :] = 0
    moved[..., range(right) if right > 0 else range(right, 0)] = 0
    return moved


def test_shift_is_roll_with_black(batch):
    down, right = torch.arange(16) % 5 - 2, torch.arange(16) % 7 - 3
    expected = torch.stack([rolled(one.clone(), int(d), int(r)) for one, d, r in zip(batch, down, right, strict=True)])
    assert torch.equal(augment.shift(batch, down, right, 3), expected)


def test_shift_reaches_every_place_and_none_beyond(generator):
    dot = torch.zeros(4000, 1, 9, 9)
    dot[:, :, 4, 4] = 1
    counts = Augment(shift=2)(dot, generator).sum((0, 1))
    assert (counts[2:7, 2:7] > 4000 / 25 * 0.6).all()
    assert counts[2:7, 2:7].sum() == 4000


def test_flip_mirrors_half_of_the_images(generator):
    batch = torch.rand(2000, 1, 2, 4)
    out = Augment(flip=True)(batch, generator)
    mirrored = (out == batch.flip(-1)).flatten(1).all(1)
    assert (mirrored | (out == batch).flatten(1).all(1)).all()
    assert 900 < mirrored.sum() < 1100


@pytest.mark.parametrize("quarter", [1, 2, 3, -1])
def test_rotation_by_quarters_is_rot90(quarter):
    image = torch.rand(2, 3, 8, 8)
    turned = augment.rotate(image, torch.full((2,), 90.0 * quarter))
    torch.testing.assert_close(turned, torch.rot90(image, quarter, (-2, -1)), atol=1e-5, rtol=0)


def test_rotation_keeps_angles_in_a_wide_image():
    """A disc stays a disc, wherever it is turned to."""
    rows, columns = torch.meshgrid(torch.arange(20.0), torch.arange(40.0), indexing="ij")
    disc = (((rows - 9.5) ** 2 + (columns - 19.5) ** 2) < 36).float()[None, None]
    turned = augment.rotate(disc, torch.tensor([30.0]))
    assert (turned - disc).abs().mean() < 0.02


def test_rotation_stays_within_the_angle(generator):
    line = torch.zeros(500, 1, 41, 41)
    line[:, :, 20, 20:] = 1
    out = Augment(rotate=30.0)(line, generator)[:, 0]
    tip = torch.argmax(out[:, :, 36], dim=1) - 20  # at 16 columns from the center
    assert tip.abs().max() <= 10  # 16 tan 30° = 9.2
    assert tip.min() < -6
    assert tip.max() > 6


def test_noise_has_the_given_deviation_and_stays_in_range(generator):
    grey = torch.full((20, 1, 50, 50), 0.5)
    out = Augment(noise=0.1)(grey, generator)
    assert (out - grey).std() == pytest.approx(0.1, rel=0.02)
    assert Augment(noise=1.0)(grey, generator).min() == 0
    assert Augment(noise=1.0)(grey, generator).max() == 1


def test_nothing_is_changed_by_default(batch, generator):
    assert torch.equal(Augment()(batch, generator), batch)


def test_the_generator_decides_everything(batch):
    change = Augment(shift=2, flip=True, rotate=20.0, noise=0.1)
    one, other = (change(batch, torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(one, other)
    assert not torch.equal(one, change(batch, torch.Generator().manual_seed(4)))


@pytest.mark.parametrize("field", [{"shift": -1}, {"rotate": 200.0}, {"noise": -0.1}])
def test_a_wrong_value_is_named(field):
    with pytest.raises(EngramError, match=next(iter(field))):
        Augment(**field)


def test_a_zoom_by_two_is_every_second_pixel_of_the_middle():
    ramp = torch.linspace(0, 1, 16).expand(1, 1, 16, 16).contiguous()
    twice = augment.rotate(ramp, torch.zeros(1), torch.tensor([2.0]))
    middle = 7.5 + (torch.arange(16) - 7.5) / 2
    torch.testing.assert_close(twice[0, 0], (middle / 15).expand(16, 16), atol=1e-5, rtol=0)


def test_zoom_makes_images_larger_and_smaller(generator):
    square = torch.zeros(500, 1, 20, 20)
    square[:, :, 5:15, 5:15] = 1
    area = Augment(zoom=0.3)(square, generator).sum((1, 2, 3))
    assert area.min() == pytest.approx(100 * 0.7**2, rel=0.1)
    assert area.max() == pytest.approx(100 * 1.3**2, rel=0.1)


def test_color_jitter_differs_by_image(batch, generator):
    out = Augment(color=0.5)(batch, generator)
    assert out.min() >= 0
    assert out.max() <= 1
    assert (out - batch).abs().mean() > 0.05
    same = augment.jitter_color(batch, torch.zeros(16, 3, 3), torch.zeros(16))
    assert torch.equal(same, batch)
    swap = torch.tensor([[-3.0, 3.0, 0.0], [3.0, -3.0, 0.0], [0.0, 0.0, 0.0]]).expand(16, 3, 3)
    torch.testing.assert_close(augment.jitter_color(batch, swap, torch.zeros(16)), batch[:, [1, 0, 2]])


@pytest.mark.parametrize("changes", [{"zoom": 1.0}, {"color": -0.1}])
def test_parts_must_be_parts(changes):
    with pytest.raises(EngramError, match=next(iter(changes))):
        Augment(**changes)


def test_a_shift_beyond_the_image_is_as_far_as_it_goes():
    made = Augment(shift=2**31)(torch.ones(50, 1, 3, 4), torch.Generator().manual_seed(0))
    assert made.shape == (50, 1, 3, 4)
    assert set(made.flatten(1).sum(1).tolist()) - {12.0}
