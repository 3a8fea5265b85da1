"""Recipe of GPT: language modeling, instruction tuning on prompts and answers, text generation."""

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from engram.core.config import from_json
from engram.core.errors import EngramError
from engram.core.learner import Batch, Learner, Metrics
from engram.core.model_size import SkipRandomWeights
from engram.core.recipe import Sample, SampleRequest
from engram.core.registry import register
from engram.core.seeding import generator
from engram.core.tap import watch
from engram.data.corpus import Corpus, RandomWindows
from engram.data.epoch_windows import EpochWindows
from engram.data.text_pairs import LengthBucketLoader
from engram.data.tokenizer import Tokenizer
from engram.generation.quantization import quantize
from engram.generation.quantized_lora import apply_quantized_lora, dequantize, restore_quantized_lora
from engram.generation.speculative import prompt_lookup_decode, speculative_decode
from engram.nn.attention import CacheBits
from engram.plots import ablation, attention, attention_arcs, embedding, logit_lens, position, rollout
from engram.plots.figure import Figure
from engram.training.learner import GradientLearner
from engram.training.optimizer import OptimizerConfig
from engram.training.run_folder import RunFolder
from engram.transformers.base import MUON, TextRecipe, load_pretrained, read_architecture, require_tokenizer
from engram.transformers.gpt.model import GPT
from engram.transformers.instruction_tuning import (
    Instructions,
    answer_loss,
    are_pairs,
    count_answered,
    evaluate_answers,
    load_pairs,
    make_batches,
    sample_answers,
    tokenize,
    train_tokenizer,
    with_template,
)
from engram.transformers.text_generation import (
    SPECIALS,
    GenerationArgs,
    TextInspectArgs,
    evaluate_perplexity,
    generate_texts,
    get_eos_id,
    tokens_to_inspect,
    validation_excerpt,
)


@dataclass(frozen=True, kw_only=True)
class GPTSampleArgs(GenerationArgs):
    """Flags of `engram sample` for GPT."""

    draft: str = ""
    """speculative decoding: run folder of a smaller GPT that drafts tokens; faster, with the same distribution"""
    prompt_lookup: bool = False
    """speculative decoding: what followed the last tokens before is the draft of what follows them now"""
    bits: Literal[32, 8, 4] = 32
    """bits of the weights: 8 or 4 quantizes them, which is faster and smaller; 32 takes them as they are"""
    cache_bits: CacheBits = 32
    """bits of the keys and values in the KV cache: 16 or 8 makes it smaller"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_beams and (self.draft or self.prompt_lookup):
            raise EngramError("Speculative decoding samples token by token: leave out --num-beams or the draft.")
        if self.draft and self.prompt_lookup:
            raise EngramError("There is one draft: leave out --draft or --prompt-lookup.")


@register
@dataclass(frozen=True, kw_only=True)
class GPTRecipe(TextRecipe[GPT]):
    """Causal Transformer language model: predicts the next token, and generates text."""

    name: ClassVar[str] = "gpt"
    title: ClassVar[str] = "GPT"
    Model: ClassVar[type[nn.Module]] = GPT
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": {"width": 16, "layers": 2, "heads": 2, "context": 16, "batch": 4, "steps": 20, "eval_every": 10},
        "full": {
            "width": 192, "layers": 6, "heads": 6, "context": 256, "batch": 12, "steps": 2100, "eval_every": 300,
            "dropout": 0.1, "weight_decay": 0.1,
        },
    }  # fmt: skip
    specials: ClassVar[Mapping[str, tuple[str, ...]]] = SPECIALS
    SampleArgs: ClassVar[type] = GPTSampleArgs
    InspectArgs: ClassVar[type] = TextInspectArgs

    data: str = "shakespeare"
    """data set of texts or pairs, .txt, a folder of them, or hf:NAME; .tsv or .jsonl of prompts and answers"""
    steps: int = 800
    eval_every: int = 100
    batch: int = 12
    """windows of text, or pairs, per batch"""
    bits: Literal[32, 8, 4] = 32
    """bits of the frozen weights with --lora: 8 or 4 quantize them (a GGUF file keeps its own), 32 does not"""
    windows: Literal["random", "epoch"] = "random"
    """sampling of windows: random positions, or each window once per epoch, shard by shard, for large texts"""
    model: GPT.Config = field(default_factory=GPT.Config)
    """architecture"""
    optimization: OptimizerConfig = replace(MUON, lr=0.02, adamw_lr=0.01, warmup=0.0, stable_fraction=0.4)
    """optimizer and learning-rate schedule"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bits != 32 and not self.lora:
            raise EngramError(f"bits is {self.bits}, and weights of so few bits are not trained: add --lora.")
        if self.bits != 32 and self.optimization.precision != "float32":
            raise EngramError(f"bits is {self.bits}, which needs the precision float32.")

    @property
    def items_per_step(self) -> float:
        return self.batch * self.model.context

    def activation_bytes(self, data: Corpus) -> int:
        """Bytes of the logits with their gradient, and of the residual stream after every layer."""
        if isinstance(data, Instructions):  # which are of the length that they are of, and have logits of answers only
            return 0
        tokens = self.batch * self.model.context // self.optimization.grad_accum
        return 4 * tokens * (2 * data.tokenizer.vocab_size + self.model.layers * self.model.width)

    # ------------------------------------------------------------------ data and model

    def load(self) -> Corpus:
        if not are_pairs(self.data):
            return super().load()
        pairs = load_pairs(self.data)
        if not self.from_:
            tokenizer, context = train_tokenizer(self.tokenizer, pairs, self.vocab_size), self.model.context
        else:
            model, known = load_pretrained(self.from_, GPT, quantized=True)
            tokenizer, context = require_tokenizer(known, self.from_), self.pair_context(model.config.context)
        return tokenize(pairs, with_template(tokenizer, self.from_ or self.data), context)

    def reload(self, folder: Path) -> Corpus:
        if not are_pairs(self.data):
            return super().reload(folder)
        context = self.pair_context(read_architecture(folder)["context"])
        return tokenize(load_pairs(self.data), Tokenizer.load(folder), context, folder)

    def pair_context(self, longest: int) -> int:
        """Return the largest length of a pair: --context if it was given, or all that the model reads."""
        return (
            longest if self.model.context == type(self).from_preset(self.preset).model.context else self.model.context
        )

    def files(self, data: Corpus) -> Mapping[str, bytes]:
        roles = {"tokenizer_config.json": data.tokenizer.roles_to_bytes()} if isinstance(data, Instructions) else {}
        return {**super().files(data), **roles}

    def init_or_load_model(self, folder: Path | None, config: Any) -> GPT:
        if self.bits == 32:
            return super().init_or_load_model(folder, config)
        if folder is None:
            model = load_pretrained(self.from_, GPT, quantized=True)[0]
            apply_quantized_lora(model, self.lora, self.bits)
            return model
        with SkipRandomWeights():
            model = GPT(from_json(GPT.Config(), read_architecture(folder)))
        restore_quantized_lora(model, RunFolder(folder).load()[0], self.lora)
        return model

    def learner(self, data: Corpus) -> GradientLearner[GPT]:
        model = self.init_or_load_model(data.folder, replace(self.model, vocabulary=data.tokenizer.vocab_size))
        given = not isinstance(data, Instructions) or self.pair_context(0) == self.model.context
        if given and model.config.context < self.model.context:
            raise EngramError(f"context is {self.model.context}, and {self.from_} sees {model.config.context} tokens.")
        terms = {"terms": count_answered} if isinstance(data, Instructions) else {}
        learner = GradientLearner if self.bits == 32 else CPULearner
        return learner(model, self.loss, self.optimization, self.steps, **terms)

    def loss(self, model: GPT, batch: Batch) -> tuple[Tensor, Metrics]:
        if are_pairs(self.data):
            return answer_loss(model, batch["x"], batch["y"]), {}
        return model.loss(batch["x"], batch["y"]), {}

    def batches(self, data: Corpus) -> RandomWindows | EpochWindows | LengthBucketLoader:
        if isinstance(data, Instructions):
            return make_batches(data, self.batch, self.seed)
        if self.windows == "epoch":
            return EpochWindows(data["train"], self.batch, self.model.context, self.seed)
        return RandomWindows(data["train"], self.batch, self.model.context, generator(self.seed, "batches"))

    def evaluate(self, learner: Learner[GPT], data: Corpus, split: str) -> dict[str, float]:
        if isinstance(data, Instructions):
            return evaluate_answers(learner.model, data, split)
        return evaluate_perplexity(learner.model, data, split, self.model.context)

    def figures(self, learner: Learner[GPT], data: Corpus) -> Iterator[Figure]:
        yield from self.activation_figures(learner.model, data, validation_excerpt(data, self.model.context))

    def activation_figures(self, model: GPT, data: Corpus, ids: list[int]) -> Iterator[Figure]:
        """Figures of the activations while the model reads one text."""
        tokens, x_1T = data.tokenizer.tokens(ids), torch.tensor([ids])
        with torch.no_grad(), watch(model, "embedding", "*.residual", "*attention.weights") as seen:
            logits_TV = model(x_1T)[0]
        yield logit_lens.top_probabilities(logits_TV[-1], data.tokenizer.token, "What comes next")
        yield attention.attention_grid(seen, tokens)
        yield attention.attention_head(seen, tokens)
        yield attention_arcs.attention_arcs(seen, tokens)
        yield rollout.rollout_text(seen, tokens)
        yield logit_lens.logit_lens(model, seen, tokens, data.tokenizer.token)
        yield ablation.head_ablation(model, lambda: model(x_1T))
        config = model.config
        if config.position == "rotary":
            yield position.rotary(config.width // config.heads, config.context)
        else:
            yield position.positions(model.position.weight if config.position == "learned" else model.sinusoid_TE)  # type: ignore[arg-type]
        names = data.tokenizer.tokens(range(min(200, config.vocabulary)))
        yield embedding.embeddings(model.embedding.weight, names)

    def inspect(self, model: GPT, data: Corpus, args: TextInspectArgs) -> tuple[str, list[Figure]]:
        ids = tokens_to_inspect(data, args, model.config.context)
        return f'"{data.tokenizer.decode(ids)}"', list(self.activation_figures(model, data, ids))

    def trace(self, model: GPT, data: Corpus, item: int) -> str:
        ids = validation_excerpt(data, self.model.context, item)
        model(torch.tensor([ids]))
        return f'"{data.tokenizer.decode(ids)}"'

    def sample(self, learner: Learner[GPT], data: Corpus, request: SampleRequest) -> Sample:
        """Generate the continuation of a prompt, or after training on pairs the answer to it."""
        args: GPTSampleArgs = request.args
        model = copy.copy(learner.model) if args.bits == 32 else quantize(merged(learner.model), args.bits)
        model.cache_bits = args.cache_bits
        if isinstance(data, Instructions):
            if args.num_beams or args.draft or args.prompt_lookup:
                raise EngramError("Answers are sampled token by token: leave out --num-beams and speculative decoding.")
            return sample_answers(model, data, request)
        options: dict[str, Any] = {"generator": request.generator, "eos_id": get_eos_id(data)}
        if args.prompt_lookup:
            decode: Callable[..., Iterator[int]] = partial(prompt_lookup_decode, model)
        elif args.draft:
            decode = partial(speculative_decode, model, load_pretrained(args.draft, GPT)[0])
        else:
            return generate_texts(model, data, request)
        return generate_texts(model, data, request, lambda prompt: decode(prompt, args.max_new_tokens, args, **options))


class CPULearner(GradientLearner[GPT]):
    """Gradient learner of a model with quantized weights, whose kernels are those of the CPU."""

    to = None  # type: ignore[assignment]


def merged(model: GPT) -> GPT:
    """Return a copy with merged LoRA, in 32 bits."""
    copied = copy.deepcopy(model)
    dequantize(copied)
    return copied
