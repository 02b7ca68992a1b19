"""The parts that the regressor and the classifier share: both are infinitely wide networks."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..base.arguments import flag, one_of, positive, whole
from ..base.program_cache import keep_programs
from ..problems.features.neurons import ACTIVATIONS, Neurons
from ..problems.losses import Loss
from ..verbs.certificate import Certificate
from .columns import Columns
from .fit import Begin, Trained, Trainer
from .inputs import Raw, apply_inputs, learn_inputs
from .outputs import outputs_at
from .relevance import PRIOR, PRIOR_OF_LABELS, Relevance, relevance_of
from .rows import WeightedRows
from .scaling import Standardiser
from .search import SearchInterrupted, search
from .storable import Storable
from .summary import Facts, Lines, Summarised, network_lines, training_score
from .verdicts import (
    automatic,
    cloud_sizes,
    new_seed,
    relative_bound,
    solver_of,
    verdict_warning,
    verified_bound,
)
from .watched import Watched

LEARNED: dict[str, type | None] = {
    "n_features_in_": None,
    "feature_names_in_": None,
    "temperature_": None,
    "l2_": None,
    "search_": None,
    "relevance_": None,
    "_columns": None,
    "_inputs": Standardiser,
    "_facts": Facts,
}
"""Learned attributes of both networks that files keep, with the class of those that are records."""
SMOOTHER = 0.1
"""Increase of the Gaussian process's log-likelihood, per row and target, from which on a smooth
activation competes with the usual one. On ten tables with noise the increase was at most .12, on
three without between .2 and .7."""
HOTTEST = 100
"""The search starts at the temperature scale^2 / HOTTEST: 1 at the default scale."""


class Network(Storable, Summarised, Watched):
    """An infinitely wide two-layer network, fitted to rows whose targets are prepared already."""

    _activation: ClassVar[str]
    """The meaning of activation="auto" for solvers that turn the loss on step by step."""
    _smooth: ClassVar[str | None] = None
    """The activation that competes with it where targets are smooth functions of the inputs."""

    temperature: Any
    l2: Any
    particles: Any
    activation: Any
    scale: Any
    relevance: Any
    solver: Any
    tol: Any
    max_iter: Any
    warm_start: Any
    random_state: Any
    verbose: Any
    _cloud: Any
    """The solver's last cloud, as a Solution, for a warm start."""
    _columns: Columns | None
    """How columns that are not plain numbers became inputs; absent in models of older files."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        return tags

    def _learn_inputs(self, raw: Raw, weights: np.ndarray) -> np.ndarray:
        """The matrix of the inputs of a fit; remembers how it was made."""
        X, self._columns = learn_inputs(raw, weights)
        return X

    def _apply_inputs(self, X: Any) -> np.ndarray:
        """The matrix of inputs to predict at, made as that of the fit."""
        check_is_fitted(self)
        return apply_inputs(self, X, getattr(self, "_columns", None), self._inputs.mean)

    def _fit_rows(
        self,
        rows: WeightedRows,
        outputs: int,
        loss: Callable[[np.ndarray], Loss],
        *,
        stratify: bool,
    ) -> None:
        """Search temperature and l2 if they are not given, fit the network and certify it.

        Args:
            rows: inputs as they were given, targets as the loss needs them.
            outputs: number of outputs of the network.
            loss: function from targets (n, t) to the loss.
            stratify: whether targets are labels, of which the held-out rows need all.
        """
        keep_programs()
        owner, began = type(self).__name__, time.perf_counter()
        self._forget_fit()  # targets are scaled by the new rows already
        temperature = automatic(owner, "temperature", self.temperature)
        l2 = automatic(owner, "l2", self.l2)
        max_iter = whole(owner, "max_iter", self.max_iter)
        tol = positive(owner, "tol", self.tol)
        warm = flag(owner, "warm_start", self.warm_start) and hasattr(self, "_cloud")
        trainers = self._trainers(rows, outputs, loss, stratify=stratify, warm=warm)
        trainer = trainers[0]
        begin = None
        if warm:
            begin = self._last_cloud((trainer.particles, trainer.features(trainer.rows.X[:1]).dim))
            # The values chosen for the first fit hold for all fits that continue from it.
            temperature = self.temperature_ if temperature is None else temperature
            l2 = self.l2_ if l2 is None else l2
        learned = len(rows)

        def accept(trained: Trained, certificate: Certificate | None) -> None:
            self._accept(trainer, trained, certificate, learned, began)

        def show(trained: Trained) -> None:
            accept(trained, None)
            self._show_draft()

        try:
            found = search(trainers, temperature, l2)
            trainer, self.temperature_, self.l2_, self.search_, searched = found
            trainer.say(f"fitting all {learned} rows at temperature {self.temperature_:.3g}")
            trained, certificate = trainer.fit(
                self.temperature_,
                self.l2_,
                tol=tol,
                max_iter=max_iter,
                begin=begin or searched,
                drafted=None if self._watcher is None else show,
            )
        except SearchInterrupted as best:
            trainer, trained, certificate = best.trainer, best.trained, None
            problem, learned = trained.solution.problem, len(trainer.rows)
            self.search_ = best.trials
            self.temperature_, self.l2_ = problem.temperature, float(problem.l2)
        accept(trained, certificate)
        verdict_warning(
            owner, certificate, self.solution_, tol, self.n_iter_, max_iter, stacklevel=4
        )

    def _accept(
        self,
        trainer: Trainer,
        trained: Trained,
        certificate: Certificate | None,
        learned: int,
        began: float,
    ) -> None:
        """Become the network that was trained on so many rows."""
        self.relevance_ = trainer.relevance
        # The solver's own cloud is kept for a warm start; the answer pools the last few clouds.
        self._cloud = trained.solution
        self.solution_ = trained.pooled().first_rows(learned)
        self.certificate_ = certificate
        seconds = time.perf_counter() - began
        self._facts = Facts(learned, training_score(self.solution_), seconds)
        self._derive()

    def _trainers(
        self,
        rows: WeightedRows,
        outputs: int,
        loss: Callable[[np.ndarray], Loss],
        *,
        stratify: bool,
        warm: bool,
    ) -> list[Trainer]:
        """Everything that the fit needs apart from temperature and l2; learns to scale inputs.

        There is one trainer per activation that may suit the table, the usual one first. A warm
        start keeps the activation of the fit before.
        """
        owner = type(self).__name__
        before = len(self._cloud.particles) if warm else None
        dim = rows.X.shape[1] + 1 + outputs
        particles, most = cloud_sizes(owner, self.particles, dim, before)
        activation = one_of(owner, "activation", self.activation, ("auto", *ACTIVATIONS))
        if activation == "auto" and warm:
            activation = self._cloud.problem.features.activation
        scale = positive(owner, "scale", self.scale)
        verbose = whole(owner, "verbose", int(self.verbose), least=0)
        solver = solver_of(owner, self.solver)
        seed = new_seed(self.random_state)
        self._inputs = Standardiser.of(rows.X, rows.weights)
        targets = self._likelihood_targets(rows, stratify)
        say = self._speaker(verbose)

        def relevance(name: str) -> Relevance:
            X = self._inputs(rows.X)
            if learned:
                prior = PRIOR_OF_LABELS if stratify else PRIOR
                return relevance_of(
                    X, targets, rows.weights, activation=name, seed=seed, prior=prior
                )
            return Relevance(np.full(X.shape[1], 1 / np.sqrt(X.shape[1])), np.nan)

        def trainer(name: str, factors: np.ndarray) -> Trainer:
            def features(X: np.ndarray) -> Neurons:
                return Neurons(X, name, bias=True, output_weight=True, outputs=outputs, scale=scale)

            return Trainer(
                WeightedRows(self._inputs(rows.X) * factors, rows.y, rows.weights),
                factors,
                features,
                loss,
                solver,
                particles,
                most,
                hottest=scale**2 / HOTTEST,
                seed=seed,
                stratify=stratify,
                progress=verbose > 1,
                say=say,
            )

        learned = one_of(owner, "relevance", self.relevance, ("auto", "equal")) == "auto"
        if activation != "auto" or not solver.turns_on_loss:
            # A solver that meets the whole loss at once needs bounded neurons.
            name = "tanh" if activation == "auto" else activation
            return [trainer(name, relevance(name).factors)]
        usual = relevance(self._activation)
        trainers = [trainer(self._activation, usual.factors)]
        if self._smooth is not None:
            smooth = relevance(self._smooth)
            if smooth.evidence > usual.evidence + SMOOTHER:
                trainers.append(trainer(self._smooth, smooth.factors))
        return trainers

    def _likelihood_targets(self, rows: WeightedRows, labels: bool) -> np.ndarray:
        """The targets of the Gaussian process that weighs the inputs."""
        if not labels:
            return rows.y
        # Labels as targets of a regression, one per class.
        y = (rows.y == np.unique(rows.y)).astype(np.float64)
        return Standardiser.of(y, rows.weights)(y)

    def _derive(self) -> None:
        self.duality_gap_ = verified_bound(self.certificate_)
        self.relative_gap_ = relative_bound(self.certificate_)
        self.history_ = self.solution_.history
        self.n_iter_ = len(self.history_["iteration"])
        self.particles_ = np.asarray(self.solution_.particles, np.float64)
        self.weights_ = np.asarray(self.solution_.weights, np.float64)

    def _fit_lines(self) -> Lines:
        return network_lines(self)

    def _last_cloud(self, shape: tuple[int, int]) -> Begin:
        """The cloud of the previous fit, if it has this shape."""
        if self._cloud.particles.shape != shape:
            raise ValueError(
                f"warm_start=True needs {type(self).__name__} to have as many inputs, outputs and "
                "particles as in the previous fit. Set warm_start=False, or use a new estimator."
            )
        return Begin(self._cloud, None)

    def _scaled(self, X: np.ndarray) -> np.ndarray:
        """Standardised inputs, multiplied by their relevance, whose squares add up to about one.

        Under the prior N(0, s^2) of the weights, the variance of w.x is then s^2 on average over
        the rows, whatever the number of inputs is.
        """
        # Files of earlier versions know no relevance.
        equal = np.full(X.shape[1], 1 / np.sqrt(X.shape[1]))
        return self._inputs(X) * getattr(self, "relevance_", equal)

    def _network(self, X: np.ndarray) -> np.ndarray:
        """The network's outputs (n, k) in double precision, block by block."""
        keep_programs()
        X = self._scaled(X)
        network = self.solution_.problem.features
        assert isinstance(network, Neurons)
        return outputs_at(X, network, self.particles_, self.weights_)
