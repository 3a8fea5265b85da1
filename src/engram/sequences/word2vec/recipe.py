"""Recipe of word2vec: word vectors from text, nearest neighbors, analogies, benchmarks."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import torch
from annotated_types import Ge
from torch import nn
from torch.nn import functional as F

from engram.core.config import Settings
from engram.core.errors import EngramError
from engram.core.learner import Learner
from engram.core.recipe import Recipe, Sample, SampleArgs, SampleRequest
from engram.core.registry import register
from engram.core.seeding import generator
from engram.data import corpus, phrases
from engram.data.corpus import Corpus
from engram.data.dataset import Info
from engram.data.sentences import SentenceLoader, count_words, get_words, take_sentences, train_word_tokenizer
from engram.data.tokenizer import Tokenizer
from engram.hub.huggingface import Checkpoint
from engram.plots.figure import Figure
from engram.sequences.word2vec import plots
from engram.sequences.word2vec.evaluation import benchmark_figures, benchmark_metrics, load_benchmarks
from engram.sequences.word2vec.learner import FullSoftmax, NegativeSampling, Word2VecTraining
from engram.sequences.word2vec.model import Word2Vec, context_pairs, noise_distribution
from engram.sequences.word2vec.vectors import WordVectors
from engram.transformers.base import TOKENIZER, require_tokenizer

EVALUATED_WORDS, EVALUATED_PAIRS = 50_000, 10_000
FIRST_RANK, LAST_RANK = 100, 1000
"""frequency ranks of the words that are shown if none are named"""


@dataclass(frozen=True, kw_only=True)
class Word2VecSampleArgs(SampleArgs):
    """Flags of `engram sample` for word vectors."""

    words: tuple[str, ...] = ()
    """words whose nearest neighbors are listed; some frequent ones if none are named"""
    analogy: tuple[str, ...] = ()
    """analogy of three words, a b c: what is to c as b is to a"""
    odd_one_out: tuple[str, ...] = ()
    """three or more words, of which the one that does not match is named"""
    topn: Annotated[int, Ge(1)] = 10
    """number of neighbors and answers"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.analogy and len(self.analogy) != 3:
            raise EngramError(f"analogy takes three words, as in --analogy man king woman, not {len(self.analogy)}.")
        if self.odd_one_out and len(self.odd_one_out) < 3:
            raise EngramError(f"odd-one-out takes three words or more, not {len(self.odd_one_out)}.")


@dataclass(frozen=True, kw_only=True)
class Word2VecInspectArgs(Settings):
    """Flags of `engram inspect` for word vectors."""

    words: tuple[str, ...] = ()
    """words to plot with their neighbors; some frequent ones if none are named"""


@register
@dataclass(frozen=True, kw_only=True)
class Word2VecRecipe(Recipe[Word2Vec, Corpus]):
    """Word vectors that predict the words nearby, so that words of similar contexts get similar vectors."""

    name: ClassVar[str] = "word2vec"
    title: ClassVar[str] = "Word vectors"
    Model: ClassVar[type[nn.Module]] = Word2Vec
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": {
            "data": "shakespeare", "width": 16, "batch": 2000, "steps": 20, "eval_every": 10, "min_count": 10,
            "benchmarks": False,
        },
        "full": {"data": "poetry", "batch": 50_000, "steps": 2200, "eval_every": 440},
        "softmax": {
            "data": "shakespeare", "objective": "softmax", "max_words": 1000, "width": 50, "batch": 500,
            "steps": 1000, "eval_every": 200, "window": 2, "lr": 0.05,
        },
    }  # fmt: skip
    unit: ClassVar[str] = "words"
    SampleArgs: ClassVar[type] = Word2VecSampleArgs
    InspectArgs: ClassVar[type] = Word2VecInspectArgs
    samples: ClassVar[int] = 8

    data: str = "brown"
    """data set of texts (`engram data list`), or a path: .txt file or folder of them, of any size"""
    steps: int = 2000
    eval_every: int = 400
    batch: Annotated[int, Ge(1)] = 10_000
    """words per step; the number of epochs is steps × batch / words of the text"""
    min_count: Annotated[int, Ge(1)] = 5
    """lowest count of a word in the vocabulary"""
    max_words: Annotated[int, Ge(0)] = 0
    """largest vocabulary, of the most frequent words; 0 means no limit"""
    lines: bool = True
    """treat each line as a sentence; --no-lines cuts long windows instead, for prose with arbitrary line breaks"""
    phrases: Annotated[int, Ge(0)] = 0
    """passes of phrase detection, such as new_york: the first joins pairs, further ones longer phrases; 0 disables"""
    threshold: Annotated[float, Ge(0)] = 100.0
    """phrase detection: how many times more often than by chance the words of a phrase must co-occur"""
    benchmarks: bool = True
    """evaluate on benchmarks of word analogies and word similarity"""
    model: Word2Vec.Config = field(default_factory=Word2Vec.Config)
    """architecture"""
    training: Word2VecTraining = field(default_factory=Word2VecTraining)
    """objective and sampling"""

    @property
    def items_per_step(self) -> float:
        return self.batch

    # ------------------------------------------------------------------ data

    def load(self) -> Corpus:
        text = self.read()
        tokenizer = train_word_tokenizer(text.splits["train"](), self.min_count, self.max_words)
        if self.phrases:
            tokens = corpus.tokenize_corpus(text, tokenizer)["train"]
            tokenizer = phrases.learn_phrases(tokens, tokenizer, self.phrases, self.min_count, self.threshold)
        if self.benchmarks:
            load_benchmarks()  # downloads now, rather than after an hour of training
        return phrases.join_phrases(corpus.tokenize_corpus(text, tokenizer), text.fingerprint)

    def reload(self, folder: Path) -> Corpus:
        text = self.read()
        found = phrases.join_phrases(corpus.tokenize_corpus(text, Tokenizer.load(folder / TOKENIZER)), text.fingerprint)
        return replace(found, folder=folder)

    def read(self) -> corpus.Text:
        """Open the text, by lines or by windows."""
        return corpus.read_text(self.data, "lines" if self.lines else "windows")

    def data_of_checkpoint(self, checkpoint: Checkpoint, info: Info) -> Corpus:
        """Return data without a text: the vocabulary, all that pretrained vectors need."""
        return Corpus(info, require_tokenizer(checkpoint.tokenizer, checkpoint.path), {})

    def files(self, data: Corpus) -> Mapping[str, bytes]:
        return {TOKENIZER: data.tokenizer.to_bytes()}

    # ------------------------------------------------------------------ training

    def learner(self, data: Corpus) -> NegativeSampling | FullSoftmax:
        model = Word2Vec(replace(self.model, vocabulary=data.tokenizer.vocab_size))
        model.count.copy_(count_words(data["train"], data.tokenizer.vocab_size))
        if self.training.objective == "softmax":
            return FullSoftmax(model, self.training, self.steps)
        return NegativeSampling(model, self.training, self.steps, generator(self.seed, "sampling"))

    def batches(self, data: Corpus) -> SentenceLoader:
        return SentenceLoader(data["train"], self.batch)

    def evaluate(self, learner: Learner[Word2Vec], data: Corpus, split: str) -> dict[str, float]:
        """Return the loss on held-out pairs, and the results of benchmarks with enough known words."""
        metrics = self.loss(learner.model, data, split)
        if self.benchmarks:
            metrics |= benchmark_metrics(self.vectors(learner.model, data))
        return metrics

    def loss(self, model: Word2Vec, data: Corpus, split: str) -> dict[str, float]:
        """Return the loss on evenly spaced pairs of a split."""
        batch, _ = take_sentences(data[split], 0, EVALUATED_WORDS)
        input_N, output_N = context_pairs(batch["words"].long(), batch["ends"], self.training.window)
        chosen = torch.linspace(0, len(input_N) - 1, min(EVALUATED_PAIRS, len(input_N))).long()
        input_B, output_B = input_N[chosen], output_N[chosen]
        if not len(chosen):
            return {}
        if self.training.objective == "softmax":
            return {"loss": F.cross_entropy(model(input_B), output_B).item()}
        p_V = torch.from_numpy(noise_distribution(model.count.numpy()))
        random = generator(self.seed, "negatives")
        negative = torch.multinomial(p_V, len(chosen) * self.training.negative, True, generator=random)
        return {"loss": model.loss(input_B, output_B, negative.view(len(chosen), -1)).item()}

    @staticmethod
    def benchmark(model: Word2Vec) -> tuple[dict[str, float], int]:
        """Evaluate a model with its tokenizer on the benchmarks; also return how many questions they have."""
        vectors = WordVectors.from_model(model, get_words(model.tokenizer))  # type: ignore[arg-type]
        analogies, pairs = load_benchmarks()
        questions = sum(map(len, analogies.values())) + sum(map(len, pairs.values()))
        return benchmark_metrics(vectors), questions

    # ------------------------------------------------------------------ figures and samples

    def vectors(self, model: Word2Vec, data: Corpus) -> WordVectors:
        """Return the word vectors of a model."""
        return WordVectors.from_model(model, get_words(data.tokenizer))

    def figures(self, learner: Learner[Word2Vec], data: Corpus) -> Iterator[Figure]:
        vectors = self.vectors(learner.model, data)
        yield plots.word_map(vectors)
        yield plots.neighborhoods(vectors, sample_frequent_words(vectors, 6, generator(self.seed, "words")))
        if self.benchmarks:
            yield from benchmark_figures(vectors)

    def inspect(self, model: Word2Vec, data: Corpus, args: Word2VecInspectArgs) -> tuple[str, list[Figure]]:
        vectors = self.vectors(model, data)
        words = list(args.words) or sample_frequent_words(vectors, 4, generator(self.seed, "words"))
        words = list(dict.fromkeys(vectors.words[vectors.index(word)] for word in words))
        neighbors = dict.fromkeys(name for word in words for name, _ in vectors.most_similar(word, 5))
        shown = [*words, *(name for name in neighbors if name not in words)]
        figures = [plots.neighborhoods(vectors, words), plots.similarities(vectors, shown[:30])]
        if len(words) > 2 and len(words) % 2 == 0:
            figures.append(plots.parallelograms(vectors, list(zip(words[::2], words[1::2], strict=True))))
        return ", ".join(words), figures

    def trace(self, model: Word2Vec, data: Corpus, item: int) -> str:
        if not 0 <= item < data.tokenizer.vocab_size - 1:
            raise EngramError(f"item must be a word from 0 to {data.tokenizer.vocab_size - 2}, not {item}.")
        model(torch.tensor([item + 1]))
        return get_words(data.tokenizer)[item + 1]

    def sample(self, learner: Learner[Word2Vec], data: Corpus, request: SampleRequest) -> Sample:
        """List nearest neighbors of words, answers to an analogy, and the odd one out."""
        args: Word2VecSampleArgs = request.args
        vectors = self.vectors(learner.model, data)
        results: dict[str, list[tuple[str, float]]] = {}
        words = args.words
        if not (words or args.analogy or args.odd_one_out):
            words = tuple(sample_frequent_words(vectors, request.count, request.generator))
        for word in words:
            results[word] = vectors.most_similar(word, args.topn)
        if args.analogy:
            a, b, c = args.analogy
            results[f"{a} : {b} = {c} :"] = vectors.analogy(a, b, c, args.topn)
        lines = [
            f"{query}\n    {'   '.join(f'{name} {cosine:.2f}' for name, cosine in rows)}"
            for query, rows in results.items()
        ]
        found: list[dict[str, Any]] = [
            {"query": query, "word": name, "cosine": cosine} for query, rows in results.items() for name, cosine in rows
        ]
        if args.odd_one_out:
            odd = vectors.doesnt_match(args.odd_one_out)
            found.append({"query": " ".join(args.odd_one_out), "odd_one_out": odd})
            lines.append(f"{' '.join(args.odd_one_out)}\n    {odd} does not match")
        cosines = [torch.tensor([cosine for _, cosine in rows]) for rows in results.values()]
        similarity = torch.cat(cosines) if cosines else torch.empty(0)
        return Sample({"similarity": similarity}, "\n".join(lines), streams_text=True, rows=found)


def sample_frequent_words(vectors: WordVectors, count: int, random: torch.Generator) -> list[str]:
    """Sample words that are frequent, but not among the most frequent."""
    first = min(FIRST_RANK, len(vectors) // 2)
    candidates = vectors.words[first : max(first + 1, min(LAST_RANK, len(vectors)))]
    order = torch.randperm(len(candidates), generator=random)[:count]
    return [candidates[i] for i in order.tolist()]
