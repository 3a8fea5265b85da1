"""The command line: one function per verb. Flags and help come from the signatures and from the recipes' fields.

torch is imported inside the verbs, so that `engram --help` answers at once. An error is one sentence and exit code 2.
"""

import contextlib
import functools
import inspect
import io
import itertools
import json as jsonlib
import os
import re
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal, TextIO

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from engram import __version__
from engram.core.errors import Elsewhere, EngramError, nearest, unknown

if TYPE_CHECKING:
    from engram.training.run import Run

INTERRUPTED = 130  # the exit code of a program ended by Ctrl-C


def main() -> None:
    """Entry point of the command `engram`."""
    signal.signal(signal.SIGTERM, terminated)
    sys.exit(answer(sys.argv[1:]))


def terminated(number: int, frame: FrameType | None) -> None:
    """SIGTERM while nothing is being learnt ends us at once. An exception might be caught on its way out."""
    with contextlib.suppress(OSError):
        os.write(2, b"engram: Interrupted; what was saved before is intact.\n")
    os._exit(INTERRUPTED)


def answer(words: Sequence[str]) -> int:
    """Carry out a command line and return its exit code."""
    try:
        code = obey(words)
        sys.stdout.flush()  # here, where a reader who has gone away can still be answered for
        return code
    except EngramError as error:
        if not isinstance(error, Elsewhere):
            complain(str(error))
        return 2
    except KeyboardInterrupt:
        complain("Interrupted; what was saved before is intact.")
        return INTERRUPTED
    except BrokenPipeError:  # whoever read our output has seen enough
        silence(sys.stdout)
        return 0
    except OSError as error:
        if error.filename is not None:
            raise
        complain(f"The output cannot be written: {(error.strerror or str(error)).lower()}.")
        silence(sys.stdout)
        return 2
    finally:
        try:
            sys.stderr.flush()
        except OSError:
            silence(sys.stderr)


def complain(sentence: str) -> None:
    with contextlib.suppress(OSError):
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"[red]engram:[/red] {escape(sentence)}")


def silence(stream: TextIO) -> None:
    """Let what cannot be written go nowhere: at the end the system would try once more, and fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def obey(words: Sequence[str]) -> int:
    """Find the verb and let it do its work."""
    if not words or words[0] in ("-h", "--help", "help"):
        return overview()
    if words[0] in ("-V", "--version"):
        print(f"engram {__version__}")
        return 0
    verb, *rest = words
    if verb not in VERBS:
        raise unknown("verb", verb, VERBS)
    function = VERBS[verb]
    return (function(rest) if function in OWN_WORDS else carry_out(function, rest, verb)) or 0


def overview() -> int:
    """What `engram --help` shows."""
    console = Console(highlight=False)
    console.print(f"[bold]engram[/bold] {__version__} · neural networks to run, to read and to look inside\n")
    table = Table(box=None, show_header=False, padding=(0, 2))
    for name, verb in VERBS.items():
        table.add_row(f"[cyan]engram {name}[/cyan]", escape((verb.__doc__ or "").splitlines()[0]))
    console.print(table)
    console.print("\nBegin with `engram list`, then `engram run gpt`. Every verb explains itself: `engram run --help`.")
    return 0


@dataclass(frozen=True, kw_only=True)
class ShownOptions:
    """What is shown of a run."""

    quiet: bool = False
    """show no progress"""
    json: bool = False
    """print the final metrics as JSON"""
    tensorboard: bool = False
    """write metrics for TensorBoard too, into the run folder"""
    shard: bool = False
    """divide the model among the processes that torchrun has started, instead of giving each the whole"""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """where it learns: on a GPU if there is one, or as named"""


@dataclass(frozen=True, kw_only=True)
class RunOptions(ShownOptions):
    """Where a run goes and what is shown of it."""

    out: Path | None = None
    """run folder; runs/NAME-1, runs/NAME-2 … if not given"""
    resume: bool = False
    """go on if the folder already holds a run, instead of refusing"""


SHOWN, DEFAULTS = ShownOptions(), RunOptions()


# ---------------------------------------------------------------------- verbs


def list_(json: bool = False) -> None:
    """Every recipe: name, title, part of the course, data.

    Args:
        json: print JSON instead of a table
    """
    from engram.core.registry import catalogue

    show(
        [
            {"name": name, "title": cls.title, "kind": cls.kind, "data": cls().data, "notes": cls.notes}
            for name, cls in catalogue().items()
        ],
        json,
    )


def run(words: list[str]) -> int:
    """Run a recipe: engram run NAME [flags], or go on with a run: engram run --resume DIR."""
    if words and words[0].startswith("-") and any(word.partition("=")[0] == "--resume" for word in words):
        return carry_out(resume, [word.removeprefix("--resume=") for word in words if word != "--resume"], "run")
    if not words or words[0] in ("-h", "--help"):
        list_()
        Console(highlight=False).print(
            "\n`engram run NAME` trains it, `engram run NAME --help` explains its flags, "
            "`engram run --resume DIR` goes on with a run."
        )
        return 0
    from engram.core.registry import find
    from engram.training.run import Run

    if words[0].startswith("-"):
        raise EngramError(f"engram run begins with the name of a recipe or with --resume, not with {words[0]}.")
    recipe, options = parse_run(find(words[0]), words[1:])
    out = options.out
    if options.resume and not out:
        raise EngramError("--resume beside a name needs --out, the folder to go on in or to begin.")
    if options.resume and out and (out / "recipe.json").exists():
        changes = changes_since(out, recipe)
        return go(lambda: Run.resume(out, **changes), options)
    return go(lambda: Run.start(recipe, out), options)


def changes_since(out: Path, recipe: Any) -> dict[str, Any]:
    """The limits that a command line sets anew for the run in `out`; in all else it must be the same recipe."""
    from engram.core.registry import settings
    from engram.data import absolute
    from engram.training.folder import RunFolder
    from engram.training.run import recipe_of

    before = recipe_of(RunFolder.open(out))
    if before.name != recipe.name:
        raise EngramError(f"{out} holds a run of {before.name}, not of {recipe.name}.")
    was, wanted = settings(before), {**settings(recipe), "data": absolute(recipe.data)}
    changes = {name: value for name, value in wanted.items() if value != was[name]}
    if fixed := [f"--{name.rstrip('_').replace('_', '-')}" for name in changes if name not in ("steps", "minutes")]:
        raise EngramError(
            f"{out} holds a run with other settings of {', '.join(fixed)}: they cannot change on the way."
        )
    return changes


def resume(folder: Path, steps: int | None = None, minutes: float | None = None, run: ShownOptions = SHOWN) -> int:
    """Go on with a run from its newest checkpoint: engram run --resume DIR.

    Args:
        folder: the run folder
        steps: a new number of steps in all
        minutes: a new limit of time in all
    """
    from engram.training.run import Run

    limits = {"steps": steps, "minutes": minutes}
    changes = {name: value for name, value in limits.items() if value is not None}
    return go(lambda: Run.resume(folder, **changes), run)


def go(begin: Callable[[], "Run"], options: ShownOptions) -> int:
    """Train to the end, and say where everything is."""
    from engram.training import distributed

    with distributed.joined(options.shard, options.device):
        return go_on(begin, options)


def go_on(begin: Callable[[], "Run"], options: ShownOptions) -> int:
    """The same, in company."""
    from engram.core import together
    from engram.figures.report import headline
    from engram.recipes import carry_on
    from engram.training.loop import Interrupted
    from engram.training.progress import Progress

    speaks = together.first()
    progress = Progress(options.quiet or not speaks, options.tensorboard and speaks)
    running = begin()
    console, folder = Console(highlight=False, soft_wrap=True), running.folder.path
    if running.finished and (folder / "report.html").exists():
        raise EngramError(f"{folder} is finished: add --steps or --minutes to go on with it.")
    again = f"Go on with: [cyan]engram run --resume {escape(shlex.quote(str(folder)))}[/cyan]"
    try:
        made = carry_on(running, progress)
    except Interrupted:
        if speaks:
            console.print(f"Saved at step {running.step}. {again}")
        return INTERRUPTED
    except KeyboardInterrupt:
        console.print(f"Stopped at once; step {running.folder.checkpoints()[-1]} is saved. {again}")
        return INTERRUPTED
    if made is None:
        return 0
    if options.json:
        last: dict[str, Any] = {}
        for line in running.folder.metrics():
            last.update(line)
        print(jsonlib.dumps({"run": str(folder), **last}))
        return 0
    if made.aloud and not options.quiet:
        print(f"{made.text}\n")
    said = headline(running.folder.metrics(), running.recipe.learns)
    values = "  ".join(f"{name} [bold]{value}[/bold]" for name, value in said.items())
    console.print(f"{running.recipe.title}: {values}\n[cyan]{escape(str(folder / 'report.html'))}[/cyan]")
    return 0


def sample(words: list[str]) -> int:
    """Let the model of a run make something: pictures, predictions, text: engram sample RUN [flags]."""

    def make(
        subject: Any, ask: Any, count: int | None = None, seed: int = 0, step: int | None = None, json: bool = False
    ) -> None:
        """Let a model make something: pictures, predictions, text. It is kept in the folder samples/.

        Args:
            count: how many
            seed: number that the randomness starts from
            step: take the checkpoint of this step instead of the newest
            json: print JSON instead
        """
        from engram.figures.report import write_sample

        told: list[str] = []

        def say(text: str) -> None:
            told.append(text)
            if not json:
                print(text, end="", flush=True)

        made, paths = write_sample(subject(step), count, seed, ask, say)
        if json:
            print(jsonlib.dumps({"text": made.text, "files": [str(path) for path in paths]}, ensure_ascii=False))
        else:
            print("\n".join([*([] if told else [made.text]), *map(str, paths)]))

    return with_subject(make, words, "sample", lambda cls: cls.Ask)


def look(words: list[str]) -> int:
    """Look inside the model of a run, as a page: engram look RUN [--text "…"] [--item N]."""

    def see(subject: Any, ask: Any, step: int | None = None) -> None:
        """Look inside a model: a page of what happens in it while one item passes through.

        Args:
            step: take the checkpoint of this step instead of the newest
        """
        from engram.figures.report import write_look

        print(write_look(subject(step), ask))

    return with_subject(see, words, "look", lambda cls: cls.Subject)


def with_subject(verb: Callable[..., None], words: list[str], name: str, flags: Callable[[Any], type]) -> int:
    """Call a verb on a run or a checkpoint, with flags that depend on what it is of."""
    if not words or words[0].startswith("-"):
        print(
            f"engram {name} RUN [flags]   RUN is a run folder or a Hugging Face checkpoint; its own flags are shown by"
        )
        print(f"engram {name} RUN --help    once it is named\n\n{(verb.__doc__ or '').partition('Args:')[0].strip()}")
        if words and words[0] not in ("-h", "--help"):
            raise EngramError(f"engram {name} begins with a run folder or a checkpoint, not with {words[0]}.")
        return 0
    from engram.recipes.pretrained import recipe_named, subject

    cls = flags(recipe_named(words[0]))

    def arguments(ask: Any = cls(), **options: Any) -> tuple[Any, dict[str, Any]]:  # noqa: B008
        return ask, options

    own = inspect.signature(verb).parameters
    kept = [parameter for key, parameter in own.items() if key not in ("subject", "ask")]
    first = inspect.Parameter("ask", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=cls(), annotation=cls)
    arguments.__signature__ = inspect.Signature([first, *kept])  # type: ignore[attr-defined]
    arguments.__annotations__ = {"ask": cls, **{parameter.name: parameter.annotation for parameter in kept}}
    arguments.__doc__ = verb.__doc__
    ask, options = parse(arguments, words[1:], f"engram {name} {words[0]}")
    verb(lambda step: subject(words[0], step), ask, **options)
    return 0


def export(run: str, to: Literal["hf", "onnx", "word2vec"] = "hf", out: Path | None = None) -> None:
    """Take a model elsewhere: to Hugging Face's format (--to hf), to ONNX (--to onnx), to word2vec's (--to word2vec).

    Args:
        run: run folder, or a Hugging Face checkpoint
        to: hf, a folder that transformers opens, onnx, one file, or word2vec, vectors as gensim opens them: text, or
            binary if --out ends in .bin
        out: where to; beside the run if not given
    """
    from engram.recipes.pretrained import write_export

    print(write_export(run, to, out))


def attack(words: list[str]) -> int:
    """Attack the classifier of a run: engram attack RUN [--eps 0.1] [--norm l2]."""
    from engram.recipes.attack import Assault, assault
    from engram.recipes.pretrained import subject as opened

    def strike(subject: Any, ask: Any, json: bool = False) -> None:
        """Attack a classifier of pictures: accuracy under each attack, and a page of what they did.

        Args:
            json: print JSON instead of a table
        """
        with Console(stderr=True).status("opening the run") as status:

            def told(what: str, done: int, all_: int) -> None:
                status.update(f"{what}: {done} of {all_}")

            rows, file = assault(subject(None), ask, opened(ask.by) if ask.by else None, told)
        for row in rows:
            row["accuracy"] = row["accuracy"] if json or row["accuracy"] == "" else f"{row['accuracy']:.2%}"
            row["eps"] = row["eps"] if json else f"{row['eps']:.4g}"
        show(rows, json)
        if not json:
            print(file)

    return with_subject(strike, words, "attack", lambda cls: Assault)


def check(words: list[str]) -> int:
    """Check a recipe's gradients against central differences: engram check NAME [flags of the recipe]."""
    import torch

    from engram.core.gradient_check import gradient_check
    from engram.core.learner import Gradient
    from engram.core.registry import find

    if not words or words[0].startswith("-"):
        print("engram check NAME [flags]   gradients of a recipe's model against central differences, in 64 bits")
        return 0
    json = "--json" in words
    recipe, _ = parse_run(find(words[0]), words[1:])
    torch.manual_seed(recipe.seed)
    data = recipe.load()
    learner: Any = recipe.learner(data)
    learner = getattr(learner, "gradient", learner)
    if type(learner) is not Gradient:
        raise EngramError(f"{recipe.name} does not learn by the gradient of a loss alone: there is nothing to check.")
    rows = gradient_check(learner.model, learner.loss, next(recipe.batches(data)), seed=recipe.seed)
    show(
        [
            {
                "weights": one.name, "tried": f"{one.tried} of {one.weights:,}", "gradient": f"{one.gradient:.6g}",
                "difference": f"{one.difference:.6g}", "wrong by": f"{one.wrong:.1e}", "right": one.right,
            }
            for one in rows
        ],
        json,
    )  # fmt: skip
    if wrong := [one for one in rows if not one.right]:
        place = ", ".join(map(str, wrong[0].place))
        raise EngramError(
            f"{len(wrong)} of {len(rows)} tensors have gradients that differ, the worst is {wrong[0].name}[{place}]."
        )
    return 0


def report(runs: tuple[Path, ...], out: Path | None = None) -> None:
    """Write the report of a run anew, also of one that is not finished; of several, a page that compares them.

    Args:
        runs: run folder, or several
        out: where the comparison goes; beside the first run, comparison.html, if not given
    """
    from engram.figures.comparison import write_comparison
    from engram.figures.report import write_report
    from engram.training.run import Run

    if not runs:
        raise EngramError("engram report needs a run folder, or several to compare.")
    if len(runs) > 1:
        print(write_comparison(runs, out or runs[0].resolve().parent / "comparison.html"))
    elif out is not None:
        raise EngramError("The report of one run goes into its folder: --out is for a comparison of several.")
    else:
        print(write_report(Run.open(runs[0])))


def data(words: list[str]) -> int:
    """The data sets: engram data list, engram data get NAME."""
    actions: dict[str, Callable[..., None]] = {"list": data_list, "get": data_get}
    if not words or words[0] in ("-h", "--help"):
        print("engram data list [--json]             every data set, and whether it is on this machine")
        print("engram data get NAME [--file FILE]    obtain one now, from its sources or from an archive you have")
        return 0
    if words[0] not in actions:
        raise unknown("action of `engram data`", words[0], actions)
    return carry_out(actions[words[0]], words[1:], f"data {words[0]}")


def data_list(json: bool = False) -> None:
    """Every data set.

    Args:
        json: print JSON instead of a table
    """
    from engram import data as datasets

    rows = []
    for name in datasets.names():
        info = datasets.info(name)
        row: dict[str, Any] = {"name": name, "kind": info.kind, "title": info.title, "licence": info.licence}
        if json:
            row |= {"source": info.source, "sha256": info.sha256, "columns": dict(info.columns)}
        sizes: Any = dict(info.sizes) if json else ", ".join(f"{k} {v:,}" for k, v in info.sizes.items())
        rows.append(row | {"sizes": sizes, "here": datasets.cached(name)})
    show(rows, json)


def data_get(name: str, file: Path | None = None) -> None:
    """Obtain a data set into the cache.

    Args:
        name: name of the data set
        file: an archive that you already have, instead of its sources
    """
    from engram import data as datasets

    print(datasets.get(name, file))


def lab(
    runs: Path = Path("runs"),
    port: int = 0,
    browser: bool = True,
    at_once: int = 0,
    memory_gb: float = 8.0,
) -> None:
    """Open the lab: a web page for every system, live.

    Args:
        runs: the folder of runs that it shows and adds to
        port: port on this machine; 8765, or a free one, if not given
        browser: open the page
        at_once: runs that learn at the same time, while others wait; half of the cores if not given
        memory_gb: memory that one run may take
    """
    from engram.lab.server import serve
    from engram.lab.workshop import Limits

    limits = Limits(memory_gb=memory_gb, **({"at_once": at_once} if at_once else {}))
    console = Console(highlight=False, soft_wrap=True)

    def say(address: str) -> None:
        console.print(
            f"The lab is open at [cyan]{escape(address)}[/cyan]\nIts runs are in {escape(str(runs))}. "
            "Ctrl-C saves what runs, and closes it."
        )

    serve(runs, port, limits, browser, say)


def bench(words: list[str]) -> int:
    """Measure engram beside its peers: engram bench, engram bench NAME."""
    names = list(itertools.takewhile(lambda word: not word.startswith("-"), words))

    def measure(rounds: int | None = None, json: bool = False) -> None:
        """Measure engram beside its peers: contestants take turns on the same work, the best of their rounds counts.

        Without a name, the benchmarks are listed.

        Args:
            rounds: how often each contestant has its turn; if not given, as often as the benchmark says, or 5 times
            json: print JSON instead of a table
        """
        from engram import bench as benchmarks

        if not names:
            show([{"name": key, "work": benchmarks.load(key).WORK} for key in benchmarks.names()], json)
        for name in names:
            show_contest(benchmarks.measure(name, rounds), json)

    return carry_out(measure, words[len(names) :], "bench [NAME …]")


def show_contest(result: dict[str, Any], json: bool) -> None:
    """Work, and for every contestant its rate, its ratio to the first, and its note if there is one."""
    if json:
        print(jsonlib.dumps(result))
        return
    print(result["work"])
    rows = [
        {"contestant": c["name"], result["unit"]: f"{c['rate']:,.1f}", "ratio": f"{c['ratio']:.2f}", "": c["note"]}
        for c in result["contestants"]
    ]
    show(rows if any(row[""] for row in rows) else [dict(list(row.items())[:-1]) for row in rows], json)


VERBS: dict[str, Callable[..., int | None]] = {
    "list": list_,
    "run": run,
    "sample": sample,
    "look": look,
    "attack": attack,
    "check": check,
    "report": report,
    "export": export,
    "data": data,
    "bench": bench,
    "lab": lab,
}
OWN_WORDS = (run, sample, look, attack, check, data, bench)
"""verbs that read their words themselves, because what they take depends on the first of them"""


# ---------------------------------------------------------------------- reading and showing


def carry_out(function: Callable[..., int | None], words: Sequence[str], verb: str) -> int:
    """Call a verb with the flags that tyro reads from its signature."""

    @functools.wraps(function)
    def collect(*args: Any, **options: Any) -> tuple[Any, Any]:
        return args, options

    args, options = parse(collect, words, f"engram {verb}")
    return function(*args, **options) or 0


def parse(what: Callable[..., Any], words: Sequence[str], prog: str) -> Any:
    """Read flags with tyro; what it would put into a box becomes one sentence."""
    import tyro

    config = (
        tyro.conf.OmitArgPrefixes,
        tyro.conf.SuppressFixed,
        tyro.conf.FlagCreatePairsOff,
        tyro.conf.PositionalRequiredArgs,
        tyro.conf.PositionalMetavarFromFieldName,
    )
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(what, args=list(words), prog=prog, config=config)
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        raise EngramError(sentence(complaint.getvalue())) from None


def parse_run(cls: Any, words: list[str]) -> tuple[Any, RunOptions]:
    """The recipe and the options of `engram run NAME`: flags on top of the preset that they name."""
    from engram.core.registry import settings

    prog, preset = f"engram run {cls.name}", "small"
    for i, word in enumerate(words):
        if word.startswith("--preset"):
            preset = word.partition("=")[2] or (words[i + 1] if i + 1 < len(words) else preset)
    default = cls.from_preset(preset)

    def arguments(recipe: Any = default, run: RunOptions = DEFAULTS) -> tuple[Any, RunOptions]:
        return recipe, run

    arguments.__annotations__["recipe"] = cls
    arguments.__doc__ = f"{cls.title}: {cls.__doc__} Presets: {', '.join(cls.all_presets())}."
    known = [name.rstrip("_") for name in (*settings(default), *settings(DEFAULTS), "help")]
    for word in words:
        name = word.partition("=")[0].removeprefix("--").replace("-", "_")
        if re.match(r"--[a-z]", word) and name not in known and name.removeprefix("no_") not in known:
            flags = [f"--{one.replace('_', '-')}" for one in known]
            raise EngramError(f"{prog} has no flag {word.partition('=')[0]}.{nearest(word, flags)}")
    recipe, options = parse(arguments, words, prog)
    return recipe, options


def sentence(box: str) -> str:
    """The text inside a box of the terminal, as one line, without the advice to ask for help."""
    inside = re.sub(r"\x1b\[[0-9;]*m", "", box)
    text = " ".join(re.sub(r"╭.*╮|[╰╯│─]", " ", inside).split())
    return text.partition(" Argument helptext")[0].partition(" For full helptext")[0].rstrip(".") + "."


def show(rows: list[dict[str, Any]], json: bool) -> None:
    """Rows as a table, or as JSON for programs."""
    if json:
        print(jsonlib.dumps(rows, ensure_ascii=False))
        return
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for i, name in enumerate(rows[0] if rows else ()):
        table.add_column(name, style="cyan" if i == 0 else None, no_wrap=i == 0)
    for row in rows:
        table.add_row(*("yes" if v is True else "" if v is False else escape(str(v)) for v in row.values()))
    Console(highlight=False).print(table)
