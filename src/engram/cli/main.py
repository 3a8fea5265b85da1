"""Entry point of the command `engram`.

Finds the verb, and turns errors into one sentence and an exit code.

A verb is a file of this folder with a function `command(argv) -> int`; the first line of its docstring is its help.
torch is imported inside of the verbs, so that `engram --help` answers at once.
"""

import contextlib
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import TextIO

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from engram import __version__
from engram.core.errors import EngramError, RemoteError, unknown
from engram.core.memory import allocation_error, is_allocation_failure

INTERRUPTED = 130
"""exit code of a program ended by Ctrl-C"""
VERBS = {
    "list": "List every recipe (a system with its settings): name, title, part of the course, data.",
    "run": "Train a recipe: engram run NAME [flags], or resume a run: engram run --resume DIR.",
    "sweep": "Tune the hyperparameters of a recipe: engram sweep NAME --lr 1e-4:1e-2 [flags].",
    "sample": "Sample from the model of a run: images, text, predictions: engram sample RUN [flags].",
    "predict": "Predict with the model of a run on new files: engram predict RUN FILES [--out FILE].",
    "chat": "Chat with a language model: engram chat smollm2.",
    "embed": "Embed lines of text as vectors: engram embed MODEL FILES --out vectors.npz.",
    "search": "Search your own texts by meaning: engram search QUERY PATHS.",
    "evaluate": "Evaluate a run on other data, with confidence intervals: engram evaluate RUN --data DATA.",
    "inspect": "Write a page on the inside of a model: engram inspect RUN [flags].",
    "attack": "Attack the classifier of a run with adversarial examples: engram attack RUN [flags].",
    "check": "Check a recipe's gradients against finite differences: engram check NAME [flags].",
    "report": "Write the report of a run, or a page that compares several: engram report RUN [RUN …].",
    "export": "Export a model to Hugging Face's format, ONNX or word2vec: engram export RUN --to FORMAT.",
    "data": "List and download data sets: engram data list, engram data get NAME.",
    "models": "List and download pretrained models: engram models list, engram models get NAME.",
    "bench": "Benchmark engram against other libraries: engram bench, engram bench NAME.",
    "lab": "Open the lab: a web page for every system, live.",
}

SYNONYMS = {
    "list": "ls recipes systems",
    "run": "train fit learn start simulate finetune fine-tune new create",
    "run --resume": "resume continue restart",
    "sweep": "tune hyperparameters optuna",
    "sample": "generate translate complete prompt draw",
    "predict": "infer inference classify apply",
    "evaluate": "test score eval validate metrics",
    "inspect": "look show explain interpret visualize attention open",
    "attack": "adversarial fgsm pgd robustness",
    "check": "gradcheck grad-check gradients verify",
    "report": "compare plot summary results",
    "export": "convert save onnx push",
    "data list": "datasets dataset",
    "data get": "download fetch get",
    "bench": "benchmark speed time",
    "lab": "ui gui web serve server app dashboard notebook",
    "--version": "version",
    "--help": "man usage commands",
}
"""what other programs call a verb"""


def main() -> None:
    """Entry point of the command `engram`."""
    signal.signal(signal.SIGTERM, exit_on_sigterm)
    sys.exit(dispatch(sys.argv[1:]))


def exit_on_sigterm(number: int, frame: FrameType | None) -> None:
    """Exit at once: outside of training there is nothing to save.

    An exception might be caught on its way out.
    """
    with contextlib.suppress(OSError):
        os.write(2, b"engram: Interrupted; what was saved before is intact.\n")
    os._exit(INTERRUPTED)


def dispatch(argv: Sequence[str]) -> int:
    """Run a command line and return its exit code."""
    try:
        code = run_command(argv)
        sys.stdout.flush()  # here, where a reader who has gone away can still be answered for
        return code
    except EngramError as error:
        if not isinstance(error, RemoteError):
            print_error(str(error))
        return 2
    except KeyboardInterrupt:
        print_error("Interrupted; what was saved before is intact.")
        return INTERRUPTED
    except BrokenPipeError:  # whoever read our output has seen enough
        silence(sys.stdout)
        return 0
    except (MemoryError, OverflowError, RuntimeError, ValueError) as error:
        if not is_allocation_failure(error):
            raise
        print_error(str(allocation_error(error)))
        return 2
    except OSError as error:
        if error.filename is not None:
            raise
        print_error(f"The output cannot be written: {(error.strerror or str(error)).lower()}.")
        silence(sys.stdout)
        return 2
    finally:
        try:
            sys.stderr.flush()
        except OSError:
            silence(sys.stderr)


def print_error(sentence: str) -> None:
    """Print an error on standard error."""
    with contextlib.suppress(OSError):
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"[red]engram:[/red] {escape(sentence)}")


def silence(stream: TextIO) -> None:
    """Redirect a stream that cannot be written to nowhere.

    At exit the interpreter would try once more, and fail.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def run_command(argv: Sequence[str]) -> int:
    """Call the verb."""
    if not argv or argv[0] in ("-h", "--help", "help"):
        return overview()
    if argv[0] in ("-V", "--version"):
        print(f"engram {__version__}")
        return 0
    verb, *rest = argv
    if verb not in VERBS:
        raise unknown_verb(verb)
    code: int | None = importlib.import_module(f"engram.cli.{verb}").command(rest)
    return code or 0


def unknown_verb(verb: str) -> EngramError:
    """Return the error for a verb that does not exist, with the one that other programs call so."""
    from engram.cli.catalog import catalog

    if verb in catalog():
        return EngramError(f'There is no verb "{verb}", which is a recipe. Did you mean "engram run {verb}"?')
    if meant := next((known for known, words in SYNONYMS.items() if verb.lower() in words.split()), ""):
        return EngramError(f'There is no verb "{verb}". Did you mean "engram {meant}"?')
    if verb.startswith("-"):
        return EngramError(f"engram begins with a verb, as in `engram run mlp`, not with {verb}.")
    return unknown("verb", verb.lower(), VERBS)


def overview() -> int:
    """What `engram --help` shows."""
    console = Console(highlight=False)
    console.print(f"[bold]engram[/bold] {__version__} · neural networks to run, to read and to look inside\n")
    table = Table(box=None, show_header=False, padding=(0, 2))
    for name, text in VERBS.items():
        table.add_row(f"[cyan]engram {name}[/cyan]", escape(text))
    console.print(table)
    console.print("\nStart with `engram list`, then `engram run gpt`. For help on a command: `engram sweep --help`.")
    return 0
