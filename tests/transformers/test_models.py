"""ViT, CLIP and the Transformer of two sequences, against what they are written out."""

import itertools
import math

import pytest
import torch
from torch.nn import functional as F

from engram.core.seeding import generator
from engram.generation.sampling import SamplingParams
from engram.nn.position import RelativePosition
from engram.transformers.clip.model import CLIP
from engram.transformers.translate.model import Transformer
from engram.transformers.vit.model import PatchEmbedding, ViT


def shaken(model, std=0.3):
    """With no parameter where its initialization left it."""
    torch.manual_seed(0)
    for parameter in model.parameters():
        if parameter.ndim:
            torch.nn.init.normal_(parameter, std=std)
    return model.eval()


def random(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


def ids(low, high, *shape, seed=0):
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed))


def near(found, expected):
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


# ---------------------------------------------------------------------- ViT


@torch.no_grad()
def test_patches_are_rows_of_pixels_times_a_matrix():
    patches, x = shaken(PatchEmbedding((3, 8, 12), 4, 10)), random(2, 3, 8, 12)
    rows_BMP = F.unfold(x, 4, stride=4).transpose(1, 2)
    expected = rows_BMP @ patches.project.weight.flatten(1).T + patches.project.bias
    near(patches(x)[:, 1:], expected + patches.position[1:])


@torch.no_grad()
def test_patches_are_read_row_by_row():
    patches, x = shaken(PatchEmbedding((1, 8, 12), 4, 10)), random(1, 1, 8, 12)
    near(patches(x)[0, 1 + 3 + 2] - patches.position[6], patches.project(x[:, :, 4:8, 8:12])[0, :, 0, 0])


@torch.no_grad()
def test_the_class_token_comes_first():
    patches, x = shaken(PatchEmbedding((1, 8, 8), 4, 10)), random(2, 1, 8, 8)
    near(patches(x)[:, 0], (patches.cls_token + patches.position[0]).expand(2, -1))


def vit(**settings):
    return shaken(ViT(ViT.Config(**{"shape": (1, 8, 8), "width": 12, "layers": 2, "heads": 3, **settings})))


@torch.no_grad()
def test_classes_are_what_the_class_token_has_gathered():
    model, x = vit(), random(2, 1, 8, 8)
    near(model(x), model.encode(x)[:, 0] @ model.head.weight.T + model.head.bias)


@torch.no_grad()
def test_every_patch_is_seen():
    model, x = vit(), random(1, 1, 8, 8)
    before = model(x)
    for row, column in itertools.product((0, 4), repeat=2):
        other = x.clone()
        other[..., row, column] += 0.5
        assert (model(other) - before).abs().max() > 1e-4


@torch.no_grad()
def test_without_positions_the_order_of_patches_is_lost():
    model, x = vit(), random(1, 1, 8, 8)
    model.patches.position.zero_()
    near(model(torch.cat([x[:, :, 4:], x[:, :, :4]], 2)), model(x))


@torch.no_grad()
def test_pictures_are_standardized_inside():
    plain, standardized, x = vit(), vit(mean=(0.4,), std=(0.2,)), random(2, 1, 8, 8)
    near(standardized(x), plain((x - 0.4) / 0.2))


# ---------------------------------------------------------------------- CLIP


END, CONTEXT = 20, 9


def clip():
    model = CLIP(CLIP.Config(
        shape=(1, 8, 8), width=12, layers=2, heads=3, text_width=8, text_layers=2, text_heads=2, vocabulary=21,
        eos_id=END, context=CONTEXT, projection_dim=6,
    ))  # fmt: skip
    return shaken(model)


def captions(lengths=(3, 8, 5, 2)):
    """Texts that end after so many tokens, filled up with their end."""
    x = ids(1, END, len(lengths), CONTEXT)
    return torch.where(torch.arange(CONTEXT) < torch.tensor(lengths)[:, None], x, END)


@torch.no_grad()
def test_logits_are_scaled_cosines():
    model, x, text = clip(), random(4, 1, 8, 8), captions()
    u, w = model.image(x), model.text(text)
    expected = math.exp(model.scale.item()) * F.cosine_similarity(u[:, None], w[None], dim=-1)
    near(model(x, text), expected)


@torch.no_grad()
def test_the_scale_is_limited():
    model, x, text = clip(), random(4, 1, 8, 8), captions()
    model.scale.fill_(50.0)
    assert model(x, text).abs().max() <= 100.001


@torch.no_grad()
def test_clip_loss_written_out():
    model, x, text = clip(), random(4, 1, 8, 8), captions()
    L = model(x, text).double().tolist()
    rows = sum(-L[i][i] + math.log(sum(math.exp(L[i][j]) for j in range(4))) for i in range(4)) / 4
    columns = sum(-L[i][i] + math.log(sum(math.exp(L[j][i]) for j in range(4))) for i in range(4)) / 4
    loss = model.loss(x, text)
    assert float(loss[0] if isinstance(loss, tuple) else loss) == pytest.approx((rows + columns) / 2, rel=1e-4)


@torch.no_grad()
def test_clip_loss_is_the_same_from_either_side(monkeypatch):
    model, x, text = clip(), random(4, 1, 8, 8), captions()
    forth = model.loss(x, text)[0]
    there, back = CLIP.encode_images, CLIP.encode_texts
    monkeypatch.setattr(CLIP, "encode_images", lambda self, _: back(self, text))
    monkeypatch.setattr(CLIP, "encode_texts", lambda self, _: there(self, x))
    near(model.loss(x, text)[0], forth)


@torch.no_grad()
def test_a_text_is_read_off_at_its_first_end():
    model, text = clip(), captions()
    encoder = model.text
    for row, length in enumerate((3, 8, 5, 2)):
        alone = text[row : row + 1, : length + 1]
        near(encoder(text)[row], encoder(alone)[0])


@torch.no_grad()
@pytest.mark.parametrize("filler", [0, 7, END])
def test_what_follows_the_end_never_matters(filler):
    model, text = clip(), captions()
    after = (text == END).int().cumsum(1) > 1
    near(model.encode_texts(torch.where(after, filler, text)), model.encode_texts(text))


@torch.no_grad()
def test_each_word_before_the_end_matters():
    model, text = clip(), captions((5,))
    before = model.encode_texts(text)
    for place in range(5):
        other = text.clone()
        other[0, place] = text[0, place] % (END - 1) + 1
        assert (model.encode_texts(other) - before).abs().max() > 1e-4


@torch.no_grad()
def test_zero_shot_probabilities_are_over_labels():
    model, x = clip(), random(3, 1, 8, 8)
    p = model.classify(x, captions())
    near(p.sum(1), torch.ones(3))
    near(p.log() - p.log()[:, :1], model(x, captions()) - model(x, captions())[:, :1])


# ---------------------------------------------------------------------- Transformer


PADDING, STOP, V = 0, 1, 17
SHAPES = [
    {},
    {"residual": "post-norm"},
    {"layout": "interleaved", "decoder_layers": 1},
    {"kv_heads": 1, "scale_embedding": False},
    {"decoder_heads": 2, "decoder_ff_width": 5, "decoder_layers": 3},
    {"position": "relative", "relative": RelativePosition(num_buckets=6, max_distance=5), "decoder_heads": 6},
    {"position": "relative", "tie_embeddings": False, "head_bias": False, "logit_scale": 0.3, "norm": "rms"},
]


def transformer(**settings):
    config = {"vocabulary": V, "width": 12, "layers": 2, "heads": 3, "context": 14, **settings}
    return shaken(Transformer(Transformer.Config(**config)))


def sources(lengths=(7, 4, 2), width=7):
    x = ids(2, V, len(lengths), width)
    return torch.where(torch.arange(width) < torch.tensor(lengths)[:, None], x, PADDING)


@torch.no_grad()
@pytest.mark.parametrize("settings", SHAPES)
def test_padding_of_the_source_never_matters(settings):
    model, x, y = transformer(**settings), sources(), ids(2, V, 3, 5)
    together = model(x, y)
    for row, length in enumerate((7, 4, 2)):
        near(together[row], model(x[row : row + 1, :length], y[row : row + 1])[0])


@torch.no_grad()
@pytest.mark.parametrize("settings", SHAPES)
def test_a_later_token_of_the_target_never_changes_earlier_logits(settings):
    model, x, y = transformer(**settings), sources(), ids(2, V, 3, 6)
    before = model(x, y)
    for place in range(1, 6):
        other = y.clone()
        other[:, place] = (y[:, place] + 1) % V
        torch.testing.assert_close(model(x, other)[:, :place], before[:, :place], atol=1e-6, rtol=0)


@torch.no_grad()
def test_every_token_of_the_source_is_seen():
    model, x, y = transformer(), sources((7,)), ids(2, V, 1, 4)
    before = model(x, y)
    for place in range(7):
        other = x.clone()
        other[0, place] = 2 + (x[0, place] - 1) % (V - 2)
        assert ((model(other, y) - before).abs().amax(-1) > 1e-4).all()


@torch.no_grad()
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_transformer_loss_written_out(smoothing):
    model, x = transformer(), sources()
    y = torch.tensor([[5, 6, 7, STOP], [8, STOP, PADDING, PADDING], [9, 10, STOP, PADDING]])
    before = torch.tensor([[PADDING, 5, 6, 7], [PADDING, 8, STOP, PADDING], [PADDING, 9, 10, STOP]])
    log = model(x, before).log_softmax(-1).double().tolist()
    total = [
        -(1 - smoothing) * log[b][t][y[b, t]] - smoothing * sum(log[b][t]) / V
        for b, t in itertools.product(range(3), range(4))
        if y[b, t] != PADDING
    ]
    assert model.loss(x, y, smoothing).item() == pytest.approx(sum(total) / len(total), rel=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("settings", SHAPES)
def test_decoding_token_by_token_equals_all_at_once(settings):
    model, x, y = transformer(**settings), sources(), ids(2, V, 3, 6)
    z, valid = model.encode(x)
    cache = model.make_cache(x.shape[1])
    found = torch.cat([model.decode(one, z, valid, cache) for one in y.split(1, 1)], 1)
    near(found, model.decode(y, z, valid))


@pytest.mark.parametrize(
    "params",
    [SamplingParams(temperature=0.0), SamplingParams(temperature=1.0), SamplingParams(top_k=3, repetition_penalty=1.3)],
)
@pytest.mark.parametrize("settings", SHAPES)
def test_remembering_changes_nothing_in_a_translation(settings, params):
    model, x = transformer(**settings), sources()
    texts = [model.translate(x, params=params, generator=generator(0), cached=cached) for cached in (True, False)]
    assert texts[0] == texts[1]


def test_sources_translated_together_are_each_alone():
    model, x = transformer(), sources()
    alone = [model.translate(x[row : row + 1, :length])[0] for row, length in enumerate((7, 4, 2))]
    assert model.translate(x) == alone


def test_relative_positions_read_sources_longer_than_the_context():
    model, x = transformer(position="relative"), sources((40, 17), 40)
    texts = [model.translate(x, cached=cached) for cached in (True, False)]
    assert texts[0] == texts[1]
    assert model.translate(x[1:, :17]) == texts[0][1:]


def test_a_translation_fits_the_context():
    model = transformer()
    model.head_bias.data[STOP] = -100.0  # never an end
    assert [len(row) for row in model.translate(sources())] == [14, 14, 14]


def test_one_beam_is_a_greedy_translation():
    model, x = transformer(), sources()
    greedy = model.translate(x[:1], 12)[0]
    assert model.beam_search(x[:1], 1, 12)[0].tokens == greedy


@torch.no_grad()
def test_beams_have_the_probabilities_that_they_say():
    model, x = transformer(), sources()[:1]
    for beam in model.beam_search(x, 3, 6):
        tokens = [*beam.tokens, STOP] if beam.ended else beam.tokens
        log = model(x, torch.tensor([[PADDING, *tokens[:-1]]]))[0].log_softmax(-1)
        expected = sum(log[i, token].item() for i, token in enumerate(tokens))
        assert beam.score == pytest.approx(expected, abs=1e-4)
