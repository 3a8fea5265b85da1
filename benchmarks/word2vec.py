"""word2vec: gensim against engram, with negatives shared per window or per sentence."""

from collections.abc import Callable
from itertools import accumulate
from typing import Any

import torch

from engram import data
from engram.cli.bench import Contestant
from engram.core.seeding import generator
from engram.data.sentences import SentenceLoader, count_words, get_words, train_word_tokenizer
from engram.data.tokens import Tokens
from engram.sequences.word2vec.learner import NegativeSampling, Word2VecTraining
from engram.sequences.word2vec.model import Word2Vec

POEMS, LEAST, WIDTH, BATCH = 268_000, 5, 100, 50_000
SETTINGS = "vectors of 100, windows of 5, 5 negatives, sample 1e-3, words that occur 5 times or more"
WORK = f"skip-gram, one epoch of 770 000 words of prose, the Brown corpus: {SETTINGS}"
UNIT = "words/s"


class Text:
    """The same words for all: as numbers for engram, as lists of strings for gensim."""

    def __init__(self, name: str = "brown", lines: int | None = None) -> None:
        texts = list(data.load(name).train["text"][:lines])
        tokenizer = train_word_tokenizer(texts, LEAST, 0)
        self.names = get_words(tokenizer)
        known = [[i for i in row if i] for row in tokenizer.encode_batch(texts)]
        ids = torch.tensor([i for row in known for i in row], dtype=torch.int32)
        self.tokens = Tokens(ids, torch.tensor(list(accumulate(map(len, known)))))
        self.sentences = [[self.names[i] for i in row] for row in known]
        self.size = len(ids)

    def gensim(self, workers: int, epochs: int, seed: int = 0) -> Any:
        """Return gensim's model with its vocabulary."""
        from gensim.models import Word2Vec as Gensim

        model = Gensim(
            vector_size=WIDTH, window=5, negative=5, sample=1e-3, sg=1, min_count=LEAST, workers=workers,
            epochs=epochs, seed=seed,
        )  # fmt: skip
        model.build_vocab(self.sentences)
        return model

    def engram(self, config: Word2VecTraining, epochs: int, seed: int = 0) -> tuple[Word2Vec, Callable[[], object]]:
        """Return engram's model and a function that trains it."""
        torch.manual_seed(seed)
        model = Word2Vec(Word2Vec.Config(vocabulary=len(self.names), width=WIDTH))
        model.count.copy_(count_words(self.tokens, len(self.names)))
        steps = self.batches()
        learner = NegativeSampling(model, config, epochs * len(steps), generator(seed))
        learner.step({"words": torch.ones(2, dtype=torch.int32), "ends": torch.tensor([2])})  # compiled by now
        return model, lambda: [learner.step(batch) for _ in range(epochs) for batch in steps]

    def batches(self) -> list[dict[str, torch.Tensor]]:
        """Return the batches of one epoch."""
        source, found = SentenceLoader(self.tokens, BATCH), []
        while source.position < len(self.tokens):
            found.append(next(source))
        return found


def contestants(workers: int = 1, text: Text | None = None) -> dict[str, Contestant]:
    text = text or Text()

    def gensim() -> Callable[[], float]:
        model = text.gensim(workers, 1)

        def work() -> float:
            model.train(text.sentences, total_examples=len(text.sentences), epochs=1)
            return text.size

        return work

    def engram(config: Word2VecTraining) -> Callable[[], float]:
        _, learn = text.engram(config, 1)

        def work() -> float:
            learn()
            return text.size

        return work

    return {
        "gensim": gensim,
        "engram": lambda: engram(Word2VecTraining(workers=workers)),
        "engram --shared-negatives sentence": lambda: engram(
            Word2VecTraining(workers=workers, shared_negatives="sentence")
        ),
    }
