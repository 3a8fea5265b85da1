"""Figures of generative models show the samples, latents and fields that they are given."""

import numpy as np
import pytest
import torch

from engram.plots import generative as views
from engram.plots.curves import curves


def test_density_is_bright_where_there_are_many_points():
    x = torch.tensor([[0.0, 0.0]] * 50 + [[1.0, 1.0]] * 5)
    image = views.density(x).int()
    assert image.shape == (views.SIDE, views.SIDE, 4)
    many, few, none = image[-1, 0, :3].sum(), image[0, -1, :3].sum(), image[0, 0, :3].sum()
    assert many > few > none


def test_points_of_one_dimension_and_of_one_place_are_drawn():
    assert views.density(torch.zeros(5, 1)).shape == (views.SIDE, views.SIDE, 4)
    assert len(views.scatter({"real": torch.randn(9, 1)}).data[0].y) == 9


def test_the_decoded_plane_follows_the_principal_components():
    z = torch.randn(5000, 4) * torch.tensor([0.1, 3.0, 0.1, 1.0]) + torch.tensor([0.0, 5.0, 0.0, 0.0])
    places = views.decode_plane(lambda z: z, z, 5).unflatten(0, (5, 5))
    middle, right, up = places[2, 2], places[2, 4] - places[2, 2], places[0, 2] - places[2, 2]
    torch.testing.assert_close(middle, z.mean(0))
    assert right.abs().argmax() == 1
    assert right.norm().item() == pytest.approx(2 * 3, rel=0.1)
    assert up.abs().argmax() == 3
    assert up.norm().item() == pytest.approx(2 * 1, rel=0.1)


def test_the_decoded_plane_of_one_dimension():
    assert views.decode_plane(lambda z: z, torch.randn(50, 1), 3).shape == (9, 1)


def test_arrows_point_where_they_should():
    figure = views.vector_field(lambda x: -x, torch.randn(500, 2), "title", "caption").plot
    line = next(trace for trace in figure.data if trace.name == "score")
    begin, end = np.stack([line.x[::3], line.y[::3]], 1), np.stack([line.x[1::3], line.y[1::3]], 1)
    far = np.linalg.norm(begin, axis=1) > 0.5
    assert (np.linalg.norm(end, axis=1) < np.linalg.norm(begin, axis=1))[far].all()


def test_field_has_the_value_of_each_place():
    figure = views.scalar_field(lambda x: x[:, 0], torch.randn(50, 2), torch.randn(50, 2), "title", "caption").plot
    heat = figure.data[0]
    np.testing.assert_allclose(heat.z, np.broadcast_to(heat.x, heat.z.shape), rtol=1e-5)
    assert {trace.name for trace in figure.data[1:]} == {"real", "generated"}


def test_a_map_has_every_class_in_its_color():
    label = torch.tensor([0, 1, 2] * 10)
    figure = views.latent_map(torch.randn(30, 2), label, ("a", "b", "c")).plot
    assert [trace.name for trace in figure.data] == ["a", "b", "c"]
    assert len({trace.marker.color for trace in figure.data}) == 3
    assert "variance" in views.latent_map(torch.randn(30, 5), None, ()).caption


def test_filmstrips_label_their_steps():
    images = views.filmstrip(torch.rand(2, 4, 1, 8, 8), ["a", "b", "c", "d"], "title", "caption").plot
    assert [one.text for one in images.layout.annotations if one.text] == ["a", "b", "c", "d"]
    points = views.filmstrip(torch.randn(3, 50, 2), ["a", "b", "c"], "title", "caption").plot
    assert [one.text for one in points.layout.annotations] == ["a", "b", "c"]
    assert len(points.data) == 3


def test_what_is_measured_once_is_no_curve():
    rows = [{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0}, {"step": 2, "test_loss": 1.0, "test_floor": 3.0}]
    (figure,) = curves(rows)
    assert [one.text for one in figure.plot.layout.annotations] == ["loss"]
