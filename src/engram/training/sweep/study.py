"""The study of a sweep: Optuna proposes settings of trials, prunes them, and keeps a journal.

Settings are proposed by the tree-structured Parzen estimator, TPE (Bergstra et al. 2011, "Algorithms for
Hyper-Parameter Optimization"). Trials are pruned by asynchronous successive halving, ASHA (Li et al. 2020, "A System
for Massively Parallel Hyperparameter Tuning"): of those that have come to a rung, the best third goes on to the next,
which is three times as many steps away. Optuna: Akiba et al. 2019, "Optuna: A Next-generation Hyperparameter
Optimization Framework".

The sampler is seeded anew for every trial, by the seed of the recipe and the number of the trial: a sweep of one job
that was interrupted proposes what it would have proposed otherwise. One process alone reads and writes the journal.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engram.core.errors import EngramError
from engram.core.files import flush, read, writing
from engram.core.seeding import generator
from engram.training.sweep.space import Parameter, Range, Space

REDUCTION_FACTOR = 3
"""one of so many trials is promoted to the next rung, so many times as far (eta)"""
MAX_DRAWS = 100
"""how often settings are sampled that were tried already, or that the recipe refuses"""
TOP_QUANTILE = 0.25
"""share of the trials that count as good where the importance of settings is measured"""
MIN_TRIALS = 8
"""trials that the importance of settings is measured from"""
STUDY = "sweep"


@dataclass(frozen=True)
class Trial:
    """One trial: its settings, what became of it, and its validation metric after every evaluation."""

    number: int
    params: Mapping[str, Any]
    """value sampled for each parameter of the space"""
    settings: Mapping[str, Any]
    """values of the varied settings"""
    state: str
    """running, complete, pruned, diverged or failed"""
    value: float | None
    """validation metric of the resulting weights; of the last evaluation, if it was pruned or diverged"""
    values: Mapping[int, float]
    """validation metric by step"""
    seconds: float
    error: str
    """why it diverged or failed"""

    @property
    def step(self) -> int:
        """Step of the last evaluation."""
        return max(self.values, default=0)


def import_optuna() -> Any:
    """Return the module optuna, with its information silenced."""
    try:
        import optuna
    except ImportError:
        raise EngramError("A sweep needs Optuna, which is not installed: pip install 'engram[sweep]'.") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


class Study:
    """Proposes trials and records them, in a journal that holds after a kill."""

    def __init__(self, journal: Path, space: Space, prune: bool) -> None:
        self.optuna, self.space = import_optuna(), space
        recipe = space.recipe
        self.seed, self.direction = recipe.seed, "minimize" if recipe.best[1] == "min" else "maximize"
        self.distributions = {name: self._distribution(one) for name, one in space.parameters.items()}
        self.min_resource, self.prune = recipe.eval_every, prune
        backends = self.optuna.storages.journal
        try:
            backend = backends.JournalFileBackend(str(journal), backends.JournalFileOpenLock(str(journal)))
            self.storage = self.optuna.storages.JournalStorage(backend)
            if not self.storage.get_all_studies():
                self.optuna.create_study(storage=self.storage, study_name=STUDY, direction=self.direction)
            self.study = self.optuna.load_study(storage=self.storage, study_name=STUDY)
            self.study_id = self.storage.get_study_id_from_name(STUDY)
            self.trials()
        except (AssertionError, AttributeError, LookupError, TypeError, ValueError):
            raise EngramError(f"{journal} is damaged: it is not the journal of this sweep.") from None

    def _distribution(self, parameter: Parameter) -> Any:
        distributions = self.optuna.distributions
        if not isinstance(parameter, Range):
            return distributions.CategoricalDistribution(parameter.ends)
        if parameter.integer:
            return distributions.IntDistribution(parameter.low, parameter.high, log=parameter.log)
        return distributions.FloatDistribution(parameter.low, parameter.high, log=parameter.log)

    # ------------------------------------------------------------------ trials

    def propose(self) -> Trial:
        """Draw the settings of a new trial and record it as running, in one line of the journal."""
        states = self.optuna.trial.TrialState
        self.study.add_trial(
            self.optuna.trial.create_trial(
                state=states.RUNNING, params=self._draw(), distributions=self.distributions, user_attrs={"error": ""}
            )
        )
        return self.trials()[-1]

    def _draw(self) -> dict[str, Any]:
        """Settings from TPE that no trial has had, if there are any; TPE sees a copy of the study."""
        known = self.study.get_trials()
        seed = generator(self.seed, f"trial {len(known)}").initial_seed() % 2**32
        copy = self._copy(known, self.optuna.samplers.TPESampler(seed=seed))
        tried = [trial.params for trial in known]
        for _ in range(MAX_DRAWS):
            found = copy.ask(self.distributions).params
            params = {name: one.round(found[name]) for name, one in self.space.parameters.items()}
            if params not in tried and self.space.accepts(params):
                return params
        untried = (one for one in self.space.combinations() if one not in tried) if self.space.finite else iter(())
        return next(untried, params)

    def _copy(self, trials: list[Any], sampler: Any = None) -> Any:
        """A study in memory with these trials."""
        copy = self.optuna.create_study(direction=self.direction, sampler=sampler)
        copy.add_trials(trials)
        return copy

    def report(self, number: int, step: int, value: float) -> None:
        """Record the metric of an evaluation; one that is known already stays."""
        if step not in self.storage.get_trial(self._id(number)).intermediate_values:
            self.storage.set_trial_intermediate_value(self._id(number), step, value)

    def should_prune(self, number: int, step: int) -> bool:
        """Whether ASHA ends the trial at this evaluation, its last.

        The same whenever it is asked, also after a kill.

        Optuna notes in a trial which rungs it has come to, and decides but once. The notes are made anew here, in a
        copy of the study, from the metrics that are recorded.
        """
        trials = self.study.get_trials()
        if not self.prune or step < trials[number].last_step:
            return False
        for trial in trials:
            trial.system_attrs = self._rungs(trial, step if trial.number == number else None)
        copy = self._copy(trials)
        pruner = self.optuna.pruners.SuccessiveHalvingPruner(self.min_resource, REDUCTION_FACTOR)
        return bool(pruner.prune(copy, copy.get_trials()[number]))

    def _rungs(self, trial: Any, before: int | None) -> dict[str, float]:
        """Metric of a trial at the rungs that it has come to, before a step."""
        found: dict[str, float] = {}
        for step, value in sorted(trial.intermediate_values.items()):
            while step >= self.min_resource * REDUCTION_FACTOR ** len(found) and (before is None or step < before):
                found[f"completed_rung_{len(found)}"] = value
        return found

    def finish(self, number: int, state: str, value: float | None, seconds: float, error: str = "") -> None:
        """Record the end of a trial: complete, pruned, diverged or failed."""
        states = self.optuna.trial.TrialState
        self.storage.set_trial_user_attr(self._id(number), "seconds", seconds)
        self.storage.set_trial_user_attr(self._id(number), "error", error)
        kind = {"complete": states.COMPLETE, "failed": states.FAIL}.get(state, states.PRUNED)
        self.study.tell(number, value if state == "complete" else None, state=kind)

    def _id(self, number: int) -> int:
        found: int = self.storage.get_trial_id_from_study_id_trial_number(self.study_id, number)
        return found

    # ------------------------------------------------------------------ results

    def trials(self) -> list[Trial]:
        """All trials, by number."""
        return [self._record(trial) for trial in self.study.get_trials()]

    def _record(self, trial: Any) -> Trial:
        error = trial.user_attrs.get("error", "")
        state = {"FAIL": "failed", "PRUNED": "diverged" if error else "pruned"}.get(
            trial.state.name, trial.state.name.lower()
        )
        return Trial(
            number=trial.number,
            params=trial.params,
            settings=self.space.settings(trial.params),
            state=state,
            value=trial.value if trial.state.is_finished() else None,
            values=dict(sorted(trial.intermediate_values.items())),
            seconds=trial.user_attrs.get("seconds", 0.0),
            error=error,
        )

    def importance(self) -> dict[str, float]:
        """Share of each setting in whether a trial is among the best quarter.

        Empty if there are too few trials.

        PED-ANOVA (Watanabe et al. 2023). A pruned trial counts with its last metric, one without any as the worst.
        """
        states = self.optuna.trial.TrialState
        finished = self.study.get_trials(states=(states.COMPLETE, states.PRUNED))
        values = [trial.value for trial in finished if trial.value is not None]
        if len(finished) < MIN_TRIALS or len(set(values)) < 2 or len(self.space.parameters) < 2:
            return {}
        worst = max(values) if self.direction == "minimize" else min(values)
        counted = [
            self.optuna.trial.create_trial(
                params=trial.params, distributions=trial.distributions,
                value=worst if trial.value is None else trial.value,
            )
            for trial in finished
        ]  # fmt: skip
        module = self.optuna.importance
        evaluator = module.PedAnovaImportanceEvaluator(target_quantile=TOP_QUANTILE)
        found: dict[str, float] = module.get_param_importances(self._copy(counted), evaluator=evaluator)
        return found


def repair(journal: Path) -> None:
    """Cut off a line that a killed process had begun to write, and remove its lock.

    Nobody else may be writing.
    """
    Path(f"{journal}.lock").unlink(missing_ok=True)
    if not journal.exists():
        return
    whole = read(journal).rfind(b"\n") + 1
    with writing(journal), journal.open("ab") as file:
        file.truncate(whole)
        flush(file)
