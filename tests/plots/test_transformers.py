"""Figures of Transformers: they show what the model computes."""

import numpy as np
import pytest
import torch

from engram.core.errors import EngramError
from engram.core.tap import watch
from engram.nn.position import RelativePosition, RelativePositionBias, RotaryEmbedding, sinusoidal
from engram.plots import page
from engram.plots.ablation import head_ablation, head_effects
from engram.plots.attention import attention_grid, attention_head, cross_attention, describe_head, tile_heads
from engram.plots.attention_arcs import TokenRow, arc_outline, attention_arcs, strongest_pairs
from engram.plots.embedding import embeddings, principal_components
from engram.plots.logit_lens import layer_probabilities, logit_lens, top_probabilities
from engram.plots.position import patch_positions, positions, relative_bias, rotary, rotary_kernel
from engram.plots.rollout import class_attention, rollout, rollout_image, rollout_text
from engram.plots.tokens import by_layer, format_token
from engram.transformers.bert.model import BERT
from engram.transformers.clip.model import CLIP
from engram.transformers.clip.plots import retrieval, similarity
from engram.transformers.gpt.model import GPT
from engram.transformers.translate.model import Transformer
from engram.transformers.vit.model import ViT

WORDS = ["the", " cat", " sat", "\n", "<s>", " the", " mat"]


def shaken(model):
    """Weights that are nowhere zero, so that every part has a say."""
    torch.manual_seed(0)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


@pytest.fixture(scope="module")
def gpt():
    return shaken(GPT(GPT.Config(width=16, layers=2, heads=4, vocabulary=11, context=16)))


@pytest.fixture(scope="module")
def bert():
    return shaken(BERT(BERT.Config(width=16, layers=2, heads=4, vocabulary=11, context=16)))


def look(model, *inputs):
    with torch.no_grad(), watch(model) as seen:
        out = model(*inputs)
    return out, seen


@pytest.fixture(scope="module")
def read(gpt):
    return look(gpt, torch.arange(7)[None])


@pytest.fixture(scope="module")
def saw():
    model = shaken(ViT(ViT.Config(shape=(1, 8, 12), width=16, layers=2, heads=2, patch=4, classes=3)))
    image = torch.rand(1, 1, 8, 12)
    return model, image, look(model, image)[1]


def test_labels_show_white_space_and_are_no_tags():
    assert format_token(" a\n") == "·a⏎"
    assert format_token("<b>") == "&lt;b&gt;"
    assert format_token("incomprehensibilities") == "incomprehen…"
    assert format_token("") == "∅"


def test_layers_of_two_stacks_are_not_mixed():
    model = shaken(Transformer(Transformer.Config(width=8, layers=1, heads=2, vocabulary=9, context=8)))
    _, seen = look(model, torch.arange(1, 6)[None], torch.arange(4)[None])
    with pytest.raises(EngramError, match="more than one stack"):
        by_layer(seen)
    with pytest.raises(EngramError, match="watch"):
        by_layer(seen, "missing")
    assert list(by_layer({name: value for name, value in seen.items() if name.startswith("encoder")})) == ["layer 0"]


def test_the_grid_puts_every_head_in_its_place():
    weights_LHTS = torch.zeros(2, 3, 4, 4)
    weights_LHTS[1, 2, 3, 0] = 1.0
    image = tile_heads(weights_LHTS, gap=1)
    assert image.shape == (2 * 5 - 1, 3 * 5 - 1, 4)
    assert image[..., 3].nonzero().tolist() == [[5 + 3, 2 * 5 + 0]]


def test_description_of_a_head_that_attends_to_the_previous_token():
    weights_TT = torch.zeros(4, 4)
    weights_TT[0, 0] = weights_TT[1, 0] = weights_TT[2, 1] = weights_TT[3, 2] = 1.0
    assert describe_head(weights_TT) == "itself 25%, previous token 100%, first token 33%<br>perplexity 1.0 tokens"


def test_the_menu_shows_one_head_at_a_time(read):
    _, seen = read
    figure = attention_head(seen, WORDS).plot
    buttons = figure.layout.updatemenus[0].buttons
    assert len(buttons) == len(figure.data) == 2 * (1 + 4)
    assert [trace.visible for trace in figure.data] == [True] + [False] * 9
    assert all(sum(button.args[0]["visible"]) == 1 for button in buttons)
    chosen = next(i for i, button in enumerate(buttons) if button.label == "layer 1, head 2")
    z = torch.tensor(np.array(figure.data[chosen].z)).nan_to_num(0)
    assert torch.equal(z, seen["blocks.1.attention.weights"][0, 2])
    assert np.isnan(figure.data[chosen].z[0, 1])  # the future may not be seen
    assert list(figure.layout.xaxis.ticktext)[3:5] == ["⏎", "&lt;s&gt;"]


def test_long_texts_are_cut_and_say_so():
    weights = {"blocks.0.attention.weights": torch.full((1, 2, 80, 80), 1 / 80)}
    for view in (attention_grid, attention_head, attention_arcs, rollout_text):
        assert "first 64 of 80" in view(weights, ["word"] * 80).caption
    assert attention_head(weights, ["word"] * 80).plot.data[0].z.shape == (64, 64)


def test_arcs_are_as_wide_as_weights():
    outline = arc_outline(m=6, t=2, width=0.4, offset=0.5)
    (x, y), (outer, inner) = outline[:-1].T, (outline[:28], outline[28:56])
    assert outer[0, 0] - inner[-1, 0] == pytest.approx(0.4)  # at the foot of who asks
    assert outer[:, 1].max() - inner[:, 1].max() == pytest.approx(0.4, abs=1e-2)  # at the top
    assert y.min() == pytest.approx(0.5, abs=1e-6)
    assert (x.min(), x.max()) == pytest.approx((1.8, 6.2))
    assert arc_outline(m=2, t=6, width=0.4, offset=0.5)[:-1, 1].max() == pytest.approx(
        -0.5, abs=1e-6
    )  # the answer comes after


def test_arcs_show_the_strongest_weights_of_words_for_others():
    weights_TT = torch.tensor([[0.9, 0.1, 0.0], [0.3, 0.69, 0.01], [0.5, 0.28, 0.22]])
    assert [(m, t) for m, t, _ in strongest_pairs(weights_TT)] == [(2, 0), (1, 0), (2, 1), (0, 1)]
    figure = attention_arcs({"blocks.0.attention.weights": weights_TT[None, None]}, ["a", "b", "c"]).plot
    before, after, tops, itself = figure.data
    assert np.isnan(before.x).sum() == 3
    assert np.isnan(after.x).sum() == 1
    assert tops.text[0] == '"c" attends to "a": 50.0%'
    assert np.allclose(np.square(itself.marker.size) / 14**2, [0.9, 0.69, 0.22])
    widest = before.x[0] - before.x[55]  # the strongest comes first
    assert widest == pytest.approx(0.5 * TokenRow.of(["a", "b", "c"]).max_width, abs=1e-5)


def test_arcs_of_one_layer_have_a_choice_of_heads(read):
    labels = [button.label for button in attention_arcs(read[1], WORDS, layer=1).plot.layout.updatemenus[0].buttons]
    assert labels == [f"layer 1, head {h}" for h in range(4)]
    with pytest.raises(EngramError, match="no layer 7"):
        attention_arcs(read[1], WORDS, layer=7)


def test_cross_attention_is_the_mean_of_heads():
    model = shaken(Transformer(Transformer.Config(width=8, layers=2, heads=2, vocabulary=9, context=8)))
    _, seen = look(model, torch.arange(1, 6)[None], torch.arange(4)[None])
    figure = cross_attention(seen, list("wxyz"), list("abcde")).plot
    assert np.allclose(figure.data[1].z, seen["decoder.1.cross.weights"][0].mean(0))
    assert len(figure.layout.xaxis.ticktext) == 5
    assert len(figure.layout.yaxis.ticktext) == 4


def test_rollout_by_hand():
    first = torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [1.0, 0.0]]])  # mean [[1, 0], [.5, .5]]
    second = torch.tensor([[[1.0, 0.0], [0.2, 0.8]]])
    after = rollout({"blocks.0.attention.weights": first[None], "blocks.1.attention.weights": second[None]})
    # hat: [[1, 0], [.25, .75]] and [[1, 0], [.1, .9]]; product: [.1 + .9 * .25, .9 * .75]
    assert torch.allclose(after[0], torch.tensor([[1, 0], [0.25, 0.75]]))
    assert torch.allclose(after[1], torch.tensor([[1, 0], [0.325, 0.675]]))


def test_rollout_keeps_all_that_there_is(read):
    assert torch.allclose(rollout(read[1]).sum(-1), torch.ones(2, 7))


def test_images_are_overlaid_with_their_patches(saw):
    model, image, seen = saw
    assert len(class_attention(seen, image[0], model.patches.grid).plot.layout.annotations) == 2 * 2
    assert [note.text for note in rollout_image(seen, image[0], (2, 3)).plot.layout.annotations][0] == "image"
    with pytest.raises(EngramError, match="7 tokens are not a class token and 5 × 5 patches"):
        rollout_image(seen, image[0], (5, 5))


def test_rotary_kernel_is_the_mean_product_of_turned_vectors():
    turn = RotaryEmbedding(8, 20)
    basis = torch.eye(8)[:, None, None].expand(8, 20, 1, 8)  # each direction at each place
    turned = turn(basis.contiguous())[:, :, 0]
    mean = (turned[:, :1] * turned).sum(-1).mean(0)
    assert torch.allclose(rotary_kernel(8, 20), mean, atol=1e-6)
    products = turned @ turned.mT
    assert torch.allclose(products.mean(0)[5:, 5], mean[:15], atol=1e-6)  # wherever it starts
    assert np.allclose(rotary(8, 20).plot.data[-1].y, mean, atol=1e-6)


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
def test_only_the_distance_of_sinusoidal_positions_counts(layout):
    heat, path = positions(sinusoidal(12, 16, layout)).plot.data
    assert np.allclose(np.diag(heat.z, 3), heat.z[0, 3], atol=1e-5)
    assert np.allclose(heat.z[0], rotary_kernel(16, 12), atol=1e-5)
    assert len(path.x) == 12


@pytest.mark.parametrize("bidirectional", [True, False])
def test_the_bias_of_relative_positions(bidirectional):
    bias = RelativePositionBias(3, RelativePosition(num_buckets=8, max_distance=20), bidirectional=bidirectional)
    lines, bias_HTS = relative_bias(bias, 15).plot.data, bias(29, 29)
    assert list(lines[0].x) == list(range(-14, 15 if bidirectional else 1))
    for h, head in enumerate(lines):
        assert np.allclose(head.y, bias_HTS[h, 14, : len(head.x)].detach())
    assert relative_bias(bias, 1000).plot.data[0].x[0] == -20  # beyond which nothing changes


def test_principal_components_keep_what_is_flat():
    flat = torch.randn(20, 2, generator=torch.Generator().manual_seed(0)) @ torch.tensor([[1.0, 0, 2], [0, 1, 1]])
    xy, share = principal_components(flat)
    assert share == pytest.approx(1)
    assert torch.allclose(torch.cdist(xy, xy), torch.cdist(flat, flat), atol=1e-4)
    assert principal_components(torch.ones(3, 1))[0].abs().max() == 0


def test_the_last_layer_of_the_lens_says_what_the_model_says(gpt, bert):
    for model in (gpt, bert):
        out, seen = look(model, torch.arange(7)[None])
        said = layer_probabilities(model, seen)
        assert list(said) == ["embedding", "layer 0", "layer 1"]
        assert torch.allclose(said["layer 1"], out[0].softmax(-1), atol=1e-6)
        cells = logit_lens(model, seen, WORDS, "abcdefghijk").plot.data[0]
        assert list(cells.text[-1]) == ["abcdefghijk"[i] for i in out[0].argmax(-1).tolist()]
        assert np.allclose(cells.z[-1], out[0].softmax(-1).amax(-1), atol=1e-6)


def test_the_lens_leaves_what_was_seen_alone(gpt):
    with torch.no_grad(), watch(gpt, "embedding", "*residual") as seen:
        gpt(torch.arange(7)[None])
    before = list(seen)
    logit_lens(gpt, seen, WORDS, str)
    assert list(seen) == before


@pytest.mark.parametrize("name", ["gpt", "bert"])
def test_a_head_that_is_switched_off_is_a_slice_of_the_output_matrix_that_is_zero(name, request):
    model = request.getfixturevalue(name)
    x = torch.arange(7)[None]
    effect_LH = head_effects(model, lambda: model(x), target=3)
    with torch.no_grad():
        full = model(x)[0, -1].log_softmax(-1)[3]
        for i, block in enumerate(model.blocks):
            for h in range(4):
                kept = block.attention.o.weight.clone()
                block.attention.o.weight[:, 4 * h : 4 * h + 4] = 0
                expected = full - model(x)[0, -1].log_softmax(-1)[3]
                block.attention.o.weight.copy_(kept)
                assert effect_LH[i, h] == pytest.approx(expected.item(), abs=1e-5)
    assert effect_LH.abs().min() > 0


def test_ablation_of_every_stack_and_the_order_of_its_heads():
    model = shaken(
        Transformer(Transformer.Config(width=8, layers=2, decoder_layers=1, heads=2, vocabulary=9, context=8))
    )
    x, y = torch.arange(1, 6)[None], torch.arange(4)[None]
    for prefix, part, count in (("encoder", "attention", 2), ("decoder", "attention", 1), ("decoder", "cross", 1)):
        assert head_effects(model, lambda: model(x, y), prefix=prefix, part=part).shape == (count, 2)
    figure = head_ablation(model, lambda: model(x, y), prefix="encoder")
    i, h = divmod(int(np.abs(figure.plot.data[0].z).argmax()), 2)
    assert f"layer·head: {i}·{h} (" in figure.caption
    with pytest.raises(EngramError, match=r"blocks\.0"):
        head_ablation(model, lambda: model(x, y))


def test_the_most_probable_come_first():
    logits = torch.tensor([0.1, 0.6, 0.3]).log()
    figure = top_probabilities(logits, ["a", "b", "c"], "What comes next", most=2)
    assert np.allclose(figure.plot.data[0].x, [0.6, 0.3])
    assert list(figure.plot.layout.yaxis.ticktext) == ["b", "c"]
    assert "90.0%" in figure.caption


def test_retrieval_finds_the_best():
    matrix_BK = torch.tensor([[0.9, 0.1, 0.2], [0.0, 0.3, 0.8]])
    images = torch.rand(2, 3, 8, 8)
    texts = ["one", "two", "<three>"]
    for_texts, for_pictures = retrieval(matrix_BK, images, texts, paired=True, best=2)
    assert [note.text for note in for_texts.plot.layout.annotations] == [
        "<b>0.90</b>", "0.00", "<b>0.30</b>", "0.10", "0.80", "0.20",
    ]  # fmt: skip
    assert [note.text for note in for_pictures.plot.layout.annotations] == [
        "<b>0.90  one</b>", "0.20  &lt;three&gt;", "0.80  &lt;three&gt;", "<b>0.30  two</b>",
    ]  # fmt: skip
    matrix = similarity(matrix_BK, images, texts, paired=True)
    assert "1 of 2" in matrix.caption
    assert len(matrix.plot.layout.images) == 2


def test_both_encoders_of_clip_can_be_seen():
    model = shaken(
        CLIP(CLIP.Config(shape=(3, 8, 8), width=8, layers=1, heads=2, text_width=8, text_heads=2, context=6))
    )
    image = torch.rand(2, 3, 8, 8)
    logits, seen = look(model, image, torch.tensor([[3, 4, 0], [5, 6, 0]]))
    picture = {name: value for name, value in seen.items() if name.startswith("image.")}
    text = {name: value for name, value in seen.items() if name.startswith("text")}
    drawn = [class_attention(picture, image[0], (2, 2)), attention_grid(text, ["a", "b", "end"])]
    assert page.figures([*drawn, similarity(logits, image, ["a", "b"])]).count("<figure>") == 3


def test_every_view_goes_into_a_page(gpt, read, saw):
    out, seen = read
    model, image, patches = saw
    drawn = [
        attention_grid(seen, WORDS), attention_head(seen, WORDS), attention_arcs(seen, WORDS),
        rollout_text(seen, WORDS),
        rollout_image(patches, image[0], model.patches.grid), class_attention(patches, image[0], model.patches.grid),
        positions(sinusoidal(9, 6)), patch_positions(model.patches.position, model.patches.grid), rotary(8, 32),
        relative_bias(RelativePositionBias(2, RelativePosition(), bidirectional=True), 9),
        logit_lens(gpt, seen, WORDS, str), head_ablation(gpt, lambda: gpt(torch.arange(7)[None])),
        top_probabilities(out[0, -1], str, "What comes next"),
        embeddings(gpt.embedding.weight, [str(i) for i in range(11)]),
    ]  # fmt: skip
    assert page.figures(drawn).count("<figure>") == len(drawn)
    assert all(figure.caption.endswith(".") for figure in drawn)
