"""The language of the field: its terms are found where they belong, and private words are not names."""

import ast
import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import engram
from engram.core.config import flatten
from engram.core.registry import registry

SOURCE = Path(engram.__file__).parent
TERMS = {
    "automatic differentiation": "foundations/autodiff/var.py",
    "topological order": "foundations/autodiff/graph.py",
    "backpropagation": "foundations/backprop/model.py",
    "cross-entropy": "foundations/autodiff/functions.py",
    "interval arithmetic": "foundations/autodiff/interval.py",
    "universal approximation": "foundations/universal_approximation/model.py",
    "regularization": "foundations/regularization/model.py",
    "early stopping": "foundations/regularization/learner.py",
    "weight decay": "training/optimizer.py",
    "dropout": "foundations/mlp/model.py",
    "vanishing gradients": "foundations/vanishing_gradients/model.py",
    "batch normalization": "nn/batch_norm.py",
    "residual": "foundations/resnet/model.py",
    "convolution": "nn/convolution.py",
    "augmentation": "data/augment.py",
    "EMA": "training/ema.py",
    "gradient accumulation": "training/optimizer.py",
    "gradient checkpointing": "training/optimizer.py",
    "clip_grad_norm": "training/optimizer.py",
    "Muon": "training/muon.py",
    "orthogonalize": "training/muon.py",
    "all-reduce": "training/distributed.py",
    "broadcast": "training/distributed.py",
    "shard": "training/distributed.py",
    "checkpoint": "training/run_folder.py",
    "learning rate": "training/optimizer.py",
    "attention": "nn/attention.py",
    "KV cache": "nn/attention.py",
    "grouped-query attention": "nn/transformer_block.py",
    "GQA": "nn/transformer_block.py",
    "RoPE": "nn/position.py",
    "sinusoidal": "nn/position.py",
    "relative position bias": "nn/position.py",
    "feed-forward": "nn/transformer_block.py",
    "layer norm": "nn/transformer_block.py",
    "LoRA": "nn/lora.py",
    "low-rank adaptation": "nn/lora.py",
    "QLoRA": "generation/quantized_lora.py",
    "instruction tuning": "transformers/instruction_tuning.py",
    "pooler": "transformers/text_classifier/model.py",
    "F1 score": "metrics/classification.py",
    "residual stream": "transformers/gpt/model.py",
    "tie_embeddings": "transformers/gpt/model.py",
    "masked language model": "transformers/bert/model.py",
    "encoder": "transformers/translate/model.py",
    "patch": "transformers/vit/model.py",
    "contrastive": "transformers/clip/model.py",
    "perplexity": "transformers/text_generation.py",
    "temperature": "generation/sampling.py",
    "top-k": "generation/sampling.py",
    "nucleus": "generation/sampling.py",
    "repetition penalty": "generation/sampling.py",
    "beam search": "generation/sampling.py",
    "alignment": "sequences/rnn_attention/plots.py",
    "teacher forcing": "sequences/rnn_attention/model.py",
    "speculative": "generation/speculative.py",
    "max_new_tokens": "generation/generate.py",
    "fused decode": "generation/fused_decode.py",
    "quantize": "generation/quantization.py",
    "logit lens": "plots/logit_lens.py",
    "ablation": "plots/ablation.py",
    "attention rollout": "plots/rollout.py",
    "backpropagation through time": "sequences/bptt.py",
    "truncated": "sequences/bptt.py",
    "chrono": "sequences/cell.py",
    "parallel scan": "nn/scan.py",
    "skip-gram": "sequences/word2vec/model.py",
    "negative sampling": "sequences/word2vec/model.py",
    "analogy": "sequences/word2vec/vectors.py",
    "ELBO": "generative/vae/model.py",
    "IWAE": "generative/vae/model.py",
    "latent": "generative/latent.py",
    "slerp": "generative/latent.py",
    "denoising": "generative/autoencoder/model.py",
    "discriminator": "generative/gan/model.py",
    "non-saturating": "generative/gan/learner.py",
    "classifier-free guidance": "generative/diffusion/model.py",
    "noise schedule": "generative/diffusion/samplers.py",
    "DDIM": "generative/diffusion/samplers.py",
    "DPM-Solver": "generative/diffusion/samplers.py",
    "inpaint": "generative/diffusion/model.py",
    "U-Net": "generative/diffusion/unet.py",
    "FID": "metrics/generative.py",
    "Fréchet distance": "metrics/generative.py",
    "precision": "metrics/generative.py",
    "contrastive divergence": "memory/rbm/learner.py",
    "fantasy particles": "memory/rbm/learner.py",
    "parallel tempering": "memory/rbm/learner.py",
    "Gibbs": "memory/rbm/model.py",
    "free energy": "memory/rbm/model.py",
    "annealed importance sampling": "memory/rbm/likelihood.py",
    "Hebb": "memory/hopfield/model.py",
    "pseudo-inverse": "memory/hopfield/model.py",
    "energy": "memory/hopfield/model.py",
    "predictive coding": "memory/predictive_coding/model.py",
    "NEF": "neurons/nef/network.py",
    "ensemble": "neurons/nef/ensemble.py",
    "decoders": "neurons/nef/ensemble.py",
    "membrane": "neurons/lif/model.py",
    "refractory": "neurons/lif/model.py",
    "rheobase": "neurons/hodgkin_huxley/excitability.py",
    "surrogate": "nn/spiking.py",
    "FGSM": "robustness/attacks/methods.py",
    "PGD": "robustness/attacks/methods.py",
    "threat model": "robustness/attacks/methods.py",
    "robust accuracy": "robustness/attacks/evaluation.py",
    "TRADES": "robustness/trades/learner.py",
}
"""terms of the field, and the file in which each must be found"""
PRIVATE = """
    together own everyone meet give full take like spread keeping whole divided from_first any_of alone Descent descent
    Gradient Source Batches Windows Rounds Same Average cut stretch things pictures division plain voucher aside chosen
    moved Roaming Elsewhere no_larger_than catalogue Ask Subject probe change aloud per_step go go_on carry_on advance
    seal claim settle fill alike answer obey carry_out complain KeyValues Choice textbook turned packed asked Writer
    Reader speculate through_time Looped Minimal hold Contrast dreams Tempering replicas Wish film DOUBT Contest player
    Adversarial Levels noising Way way Moment clean forget Coding Down Up draws Exam marks judge_of own_marks chance
    Settling Race Racing Remedies Deep Plain Greedy ByOneself SideBySide Withstanding depth overfitting optimisers
    approximation Assembly Held Flow Passing Living Timed Balanced Threat Guess slope anywhere withstood examine nobody
    Assault Defence continuing language coded timed quality how_well told continued read_along speaker seer matcher
    filler begun bare spoken made door desk asks DOINGS shelf workshop Obedient Conversation brought passages
    mathematics heat settling remedies race lens arcs drawn opened said looked sampled measured kept Link picture
    slowest_hz fastest_hz lowest highest read_ms rest_lr stretches tokeniser judge_lr
""".split()  # noqa: SIM905 (a list of words reads better)
"""private words of old, which are the names of no module, class, function, method, argument or field"""
ELSEWHERE = {"packed", "settings", "passages"}
"""words of the field within a class or a function: packed bits, settings of a config.json, passages to search"""
FLAGS = """
    every keep clip hold accumulate recompute rest_lr tokens stretches tokeniser most repetition place inside pre rules
    code draws deviation bound memory replicas noising forget predict slowest_hz fastest_hz lowest highest read_ms wait
    drive rounds decay watch judge_lr
""".split()  # noqa: SIM905
"""flags of old"""


def documented(file: Path) -> str:
    """Return all names of a file and the first lines of its docstrings, as one text."""
    tree = ast.parse(file.read_text())
    found = [file.stem]
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            found += [getattr(node, "name", ""), (ast.get_docstring(node) or "").partition("\n")[0]]
        elif isinstance(node, ast.arg):
            found.append(node.arg)
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            found.append(ast.unparse(node.target if isinstance(node, ast.AnnAssign) else node.targets[0]))
            found.append(ast.unparse(node.value) if isinstance(node.value, ast.Constant) else "")
            found.append(ast.unparse(node.annotation) if isinstance(node, ast.AnnAssign) else "")
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            found.append(node.value.value.partition("\n")[0])
    return "\n".join(found)


@pytest.mark.parametrize(("term", "file"), TERMS.items(), ids=TERMS)
def test_a_term_of_the_field_is_found_where_it_belongs(term, file):
    text = documented(SOURCE / file)
    pattern = re.sub(r"[-_ ]", r"[-_ ]?", term)
    case = 0 if term.isupper() else re.IGNORECASE
    assert re.search(pattern, text, case), f"{term} is in no name and in no first line of {file}"


def public_names(file: Path) -> set[str]:
    """Return the names of a module, its classes and functions, and of their public methods, fields and arguments."""
    return {file.stem, *names_in(ast.parse(file.read_text()).body)}


def names_in(body: list[ast.stmt], within: bool = False) -> Iterator[str]:
    """Yield public names of a module or of a class, and the arguments of its functions."""
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name
            yield from names_in(node.body, within=True)
        elif isinstance(node, ast.FunctionDef) and (not node.name.startswith("_") or node.name == "__init__"):
            yield from {node.name} - (ELSEWHERE if within else set())
            arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            yield from {argument.arg for argument in arguments} - ELSEWHERE
        elif within and isinstance(node, ast.AnnAssign):
            yield from {ast.unparse(node.target)} - ELSEWHERE


def test_names_of_methods_arguments_and_fields_are_seen():
    code = "class A:\n    b: int\n    def c(self, d): ...\n    def _e(self): ...\ndef f(*, g): ...\nclass _H: ..."
    assert set(names_in(ast.parse(code).body)) == {"A", "b", "c", "self", "d", "f", "g"}


@pytest.mark.parametrize("file", sorted(SOURCE.rglob("*.py")), ids=lambda file: str(file.relative_to(SOURCE)))
def test_no_name_is_a_private_one(file):
    assert not public_names(file) & set(PRIVATE)


@pytest.mark.parametrize("name", registry())
def test_no_flag_has_a_private_name(name):
    cls = registry()[name]
    fields = set(flatten(cls()))
    fields |= {field.name for args in (cls.SampleArgs, cls.InspectArgs) for field in dataclasses.fields(args)}
    assert not fields & set(FLAGS)


@pytest.mark.parametrize("file", sorted(SOURCE.rglob("*.py")), ids=lambda file: str(file.relative_to(SOURCE)))
def test_the_first_line_of_a_docstring_is_short(file):
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            first = (ast.get_docstring(node) or "").partition("\n")[0]
            assert len(first) <= 100, f"{file}: {first} ({len(first)} characters)"
