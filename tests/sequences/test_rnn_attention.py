"""The recurrent encoder-decoder beside torch's GRU, attention beside its formulas, and search beside enumeration."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from engram import load
from engram.core.errors import EngramError
from engram.core.tap import watch
from engram.data.text_pairs import pad_rows
from engram.generation.sampling import GREEDY
from engram.sequences.rnn_attention import plots
from engram.sequences.rnn_attention.model import ATTENTIONS, Seq2Seq
from engram.training.run import Run
from tests.conftest import tiny

KINDS = ["none", *ATTENTIONS]
ROWS = [[5, 3, 8, 2, 1], [4, 1], [7, 7, 6, 1]]
LENGTHS = torch.tensor([5, 2, 4])


def model_of(attention="additive", **changes):
    """A model with random weights everywhere, the head included."""
    torch.manual_seed(0)
    model = Seq2Seq(
        Seq2Seq.Config(attention=attention, **{"width": 6, "vocabulary": 9, "context": 8, **changes})
    ).eval()
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.7)
    return model


def torch_gru(model):
    """Encoder and decoder as torch has them, with the same weights."""
    directions, width = len(model.encoder), model.config.width
    encoder = nn.GRU(width, width // directions, batch_first=True, bidirectional=directions == 2)
    decoder = nn.GRUCell(width, width)
    pairs = [(encoder, cell, f"_l0{'_reverse' if i else ''}") for i, cell in enumerate(model.encoder)]
    for theirs, cell, end in (*pairs, (decoder, model.decoder, "")):
        for side, layer in (("ih", cell.U), ("hh", cell.W)):
            getattr(theirs, f"weight_{side}{end}").data = layer.weight.data
            getattr(theirs, f"bias_{side}{end}").data = layer.bias.data
    return encoder, decoder


@pytest.mark.parametrize("bidirectional", [True, False])
def test_the_encoder_is_a_packed_gru_of_torch(bidirectional):
    model = model_of(bidirectional=bidirectional)
    encoder, _ = torch_gru(model)
    packed = nn.utils.rnn.pack_padded_sequence(
        model.source_embedding(pad_rows(ROWS, 0)), LENGTHS, batch_first=True, enforce_sorted=False
    )
    states, last_DBH = encoder(packed)
    expected_BSE, _ = nn.utils.rnn.pad_packed_sequence(states, batch_first=True)
    found = model.encode(pad_rows(ROWS, 0))
    torch.testing.assert_close(found.z_BSE[found.valid_BS], expected_BSE[found.valid_BS])
    torch.testing.assert_close(found.last_BE, torch.cat([*last_DBH], -1))


def score(kind, attention, h_E, z_E):
    """A score in NumPy, as the papers write it."""
    h_E, z_E = h_E.numpy(), z_E.numpy()
    if kind == "dot":
        return h_E @ z_E
    key = attention.key.weight.detach().numpy()
    if kind == "general":
        return h_E @ (key @ z_E)
    query, v = attention.query.weight.detach().numpy(), attention.v.detach().numpy()
    return v @ np.tanh(query @ h_E + key @ z_E)


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_the_decoder_is_a_cell_of_torch_and_attention_its_formulas(kind):
    model, y_BT = model_of(kind), torch.tensor([[0, 2, 5], [0, 3, 3], [0, 8, 1]])
    _, decoder = torch_gru(model)
    encoded = model.encode(pad_rows(ROWS, 0))
    with watch(model, "attention.weights") as seen:
        logits_BTV = model(pad_rows(ROWS, 0), y_BT)
    for b, length in enumerate(LENGTHS):
        h_E, z_SE = encoded.last_BE[b], encoded.z_BSE[b, :length]
        for t, token in enumerate(y_BT[b]):
            h_E = decoder(model.target_embedding(token)[None], h_E[None])[0]
            out_E = h_E
            if kind != "none":
                e_S = np.array([score(kind, model.attention, h_E, z_E) for z_E in z_SE])
                weights_S = torch.tensor(np.exp(e_S) / np.exp(e_S).sum())
                torch.testing.assert_close(seen["attention.weights"][b, t, :length], weights_S)
                assert (seen["attention.weights"][b, t, length:] == 0).all()
                both = torch.cat([(weights_S[:, None] * z_SE).sum(0), h_E])
                out_E = torch.tanh(model.attention.combine.weight @ both)
            torch.testing.assert_close(logits_BTV[b, t], model.head(out_E), atol=1e-5, rtol=1e-5)
    assert ("attention.weights" in seen) == (kind != "none")


@pytest.mark.parametrize("kind", ATTENTIONS)
def test_gradients_of_attention_are_finite_differences(kind):
    torch.manual_seed(0)
    attention = ATTENTIONS[kind](3).double()
    h_BTE, z_BSE = (torch.randn(2, n, 3, dtype=torch.double, requires_grad=True) for n in (2, 4))
    valid_BS = torch.tensor([[True] * 4, [True, True, False, False]])
    assert torch.autograd.gradcheck(lambda h, z: attention(h, z, attention.keys(z), valid_BS), (h_BTE, z_BSE))
    attention(h_BTE, z_BSE, attention.keys(z_BSE), valid_BS).sum().backward()
    assert (z_BSE.grad[1, 2:] == 0).all()
    assert (z_BSE.grad[1, :2] != 0).all()


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_padding_and_steps_change_nothing(kind):
    model, y_BT = model_of(kind), torch.tensor([[0, 2, 5, 3]])
    together = model(pad_rows(ROWS, 0), y_BT.expand(3, -1))
    for b, row in enumerate(ROWS):
        x_1S = torch.tensor([row])
        torch.testing.assert_close(model(x_1S, y_BT)[0], together[b])
        encoded, steps = model.encode(x_1S), []
        h_1E = encoded.last_BE
        for token_11 in y_BT.split(1, 1):
            logits, h_1E = model.decode(token_11, encoded, h_1E)
            steps.append(logits[0, 0])
        torch.testing.assert_close(torch.stack(steps), together[b])
    assert model.translate(pad_rows(ROWS, 0)) == [model.translate(torch.tensor([row]))[0] for row in ROWS]


@pytest.mark.parametrize("kind", ["none", "dot"])
@torch.no_grad()
def test_beam_search_finds_what_enumeration_finds(kind):
    model, x_1S = model_of(kind, vocabulary=5), torch.tensor([[2, 3, 4, 1]])
    scores = {}
    for length in range(4):  # texts of up to 2 tokens and their end, and those of 3 tokens
        for tokens in itertools.product((0, 2, 3, 4), repeat=length):
            target = [*tokens, *([1] if length < 3 else [])]
            y_1T = torch.tensor([target])
            log_p_TV = model(x_1S, model.shift_right(y_1T))[0].log_softmax(-1)
            scores[tokens] = log_p_TV.gather(1, y_1T.T).sum().item() / len(target)
    found = model.beam_search(x_1S, num_beams=200, max_new_tokens=3)
    best = sorted(scores, key=lambda tokens: -scores[tokens])[:20]
    assert [tuple(beam.tokens) for beam in found[:20]] == best
    assert model.beam_search(x_1S, 1)[0].tokens[:7] == model.translate(x_1S, 7, GREEDY)[0]


def test_the_loss_is_the_mean_over_tokens_and_that_of_pairs_over_each():
    model, targets = model_of(), [[4, 2, 1], [8, 1]]
    x_BS, y_BT = pad_rows(ROWS[:2], 0), pad_rows(targets, 0)
    logits = [model(torch.tensor([x]), torch.tensor([[0, *y[:-1]]]))[0] for x, y in zip(ROWS, targets, strict=False)]
    losses = [F.cross_entropy(row, torch.tensor(y), reduction="none") for row, y in zip(logits, targets, strict=True)]
    torch.testing.assert_close(model.loss(x_BS, y_BT), torch.cat(losses).mean())
    found = plots.pair_losses(model(x_BS, model.shift_right(y_BT)), y_BT, 0)
    torch.testing.assert_close(found, torch.stack([loss.mean() for loss in losses]))


def test_two_directions_need_an_even_width():
    with pytest.raises(EngramError, match="width must be even"):
        Seq2Seq.Config(width=7)
    assert Seq2Seq(Seq2Seq.Config(width=7, bidirectional=False)).config.width == 7


# ---------------------------------------------------------------------- the recipe


@pytest.mark.parametrize("kind", KINDS)
def test_every_attention_trains_and_shows_its_alignment(kind, engram, tmp_path):
    (tmp_path / "own.tsv").write_text("".join(f"{i}\t{i + 1}\n" for i in range(100)))
    words = ("--preset", "tiny", "--data", tmp_path / "own.tsv", "--attention", kind, "--out", tmp_path / "run")
    answer = engram("run", "rnn-attention", *words)
    assert answer.code == 0, answer.err
    run = Run.open(tmp_path / "run")
    said, figures = run.recipe.inspect(run.learner.model, run.data, run.recipe.InspectArgs(text="42"))
    assert said.startswith('"42" → "')
    assert [figure.title for figure in figures][:-1] == (["Alignment"] if kind != "none" else [])
    if kind != "none":
        z = np.array(figures[0].plot.data[0].z)
        assert z.shape[1] == len("42") + 1
        np.testing.assert_allclose(np.nansum(z, 1), 1, atol=1e-5)
    for beams in (0, 2):
        assert "42  →" in engram("sample", tmp_path / "run", "--text", "42", "--num-beams", beams).out
    (tmp_path / "lines.txt").write_text("7\n42\n")
    assert engram("predict", tmp_path / "run", tmp_path / "lines.txt").out.startswith("input,text,prediction")


def test_data_without_pairs_and_unknown_characters_are_one_sentence(refused, finished, tmp_path):
    assert "learns from pairs of texts" in refused("run", "rnn-attention", "--data", "digits", "--out", tmp_path / "no")
    assert "attention" in refused("run", "rnn-attention", "--attention", "cosine", "--out", tmp_path / "no")
    assert "item must be" in refused("inspect", finished("rnn-attention"), "--item", 10**6)


@pytest.mark.slow
def test_attention_learns_dates_sooner(tmp_path):
    """At equal width and after as many steps; `none` has fewer weights, those of attention."""
    exact = {}
    for kind in ("additive", "none"):
        changes = {"width": 64, "batch": 64, "steps": 150, "eval_every": 150, "attention": kind}
        run = tiny("rnn-attention", tmp_path / kind, **changes)
        exact[kind] = run.folder.metrics()[-1]["test_exact_accuracy"]
    assert exact["additive"] > 0.7
    assert exact["none"] < 0.4
    model = load(tmp_path / "additive")
    assert model.predict(["3 May 1999"]) == ["1999-05-03"]
