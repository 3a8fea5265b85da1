"""Quality of word vectors of gensim and engram from the same text, on benchmarks."""

from collections.abc import Callable

import numpy as np
import torch

from engram.cli import bench
from engram.cli.bench import Contestant, Score
from engram.sequences.word2vec.evaluation import benchmark_metrics
from engram.sequences.word2vec.learner import Word2VecTraining
from engram.sequences.word2vec.vectors import WordVectors

EPOCHS, SEEDS = 5, 3
WORK = (
    f"{EPOCHS} epochs of 1.9 million words of poetry: the mean of {SEEDS} seeds, on analogies, WordSim-353, SimLex-999"
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

    def engram(config: Word2VecTraining, seed: int) -> WordVectors:
        model, learn = text.engram(config, EPOCHS, seed)
        learn()
        return WordVectors.from_model(model, text.names)

    def evaluated(train: Callable[[int], WordVectors]) -> Callable[[], Score]:
        def work() -> Score:
            found = [benchmark_metrics(train(seed)) for seed in range(1, SEEDS + 1)]
            analogies, wordsim, simlex = (np.array([one[name] for one in found]) for name in found[0])
            note = f"analogies {spread(analogies)}, WordSim {spread(wordsim)}, SimLex {spread(simlex)}"
            return Score(100 * float(analogies.mean()), note)

        return work

    return {
        "gensim": lambda: evaluated(gensim),
        "engram": lambda: evaluated(lambda seed: engram(Word2VecTraining(), seed)),
        "engram --shared-negatives sentence": lambda: evaluated(
            lambda seed: engram(Word2VecTraining(shared_negatives="sentence"), seed)
        ),
    }


def spread(values: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> str:
    return f"{values.mean():.3f} ± {values.std(ddof=1):.3f}"
