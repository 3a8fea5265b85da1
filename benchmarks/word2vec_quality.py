"""How good the word vectors are that gensim and engram learn from the same text, as examinations tell."""

from collections.abc import Callable

import numpy as np
import torch

from engram import bench
from engram.bench import Contestant, Score
from engram.models.word2vec import Sampling
from engram.models.word_vectors import WordVectors
from engram.recipes.word2vec import marks

EPOCHS, SEEDS = 5, 3
WORK = (
    f"{EPOCHS} times through 1.9 million words of poetry: the mean of {SEEDS} seeds, on analogies, WordSim-353, "
    "SimLex-999"
)
UNIT = "% of analogies"
ROUNDS = 1


def contestants() -> dict[str, Contestant]:
    speed = bench.load("word2vec")
    text = speed.Text("poetry", speed.POEMS)

    def gensim(seed: int) -> WordVectors:
        model = text.gensim(1, EPOCHS, seed)
        model.train(text.sentences, total_examples=len(text.sentences), epochs=EPOCHS)
        return WordVectors(model.wv.index_to_key, torch.from_numpy(model.wv.vectors))

    def engram(sampling: Sampling, seed: int) -> WordVectors:
        model, learn = text.engram(sampling, EPOCHS, seed)
        learn()
        return WordVectors.of(model, text.names)

    def examined(learnt: Callable[[int], WordVectors]) -> Callable[[], Score]:
        def work() -> Score:
            found = [marks(learnt(seed)) for seed in range(1, SEEDS + 1)]
            analogies, wordsim, simlex = (np.array([one[name] for one in found]) for name in found[0])
            note = f"analogies {spread(analogies)}, WordSim {spread(wordsim)}, SimLex {spread(simlex)}"
            return Score(100 * float(analogies.mean()), note)

        return work

    return {
        "gensim": lambda: examined(gensim),
        "engram": lambda: examined(lambda seed: engram(Sampling(), seed)),
        "engram --share sentence": lambda: examined(lambda seed: engram(Sampling(share="sentence"), seed)),
    }


def spread(values: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> str:
    return f"{values.mean():.3f} ± {values.std(ddof=1):.3f}"
