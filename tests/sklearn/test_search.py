"""The search for temperature and l2: what it leaves alone, what it holds out, when it ends."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import entroplay as ep
from entroplay.sklearn import candidates, judges, part, search
from entroplay.sklearn.fit import Trainer
from entroplay.sklearn.part import Part
from entroplay.sklearn.rows import merge

from .cases import LABELS, X, Y, regressor

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def trainer(y, rows=90, **changes):
    """Everything that a search needs; it solves nothing before it has to."""
    return Trainer(
        merge(X[:rows], y[:rows, None], np.ones(rows)),
        **{
            "relevance": np.ones(X.shape[1]),
            "features": lambda x: ep.Neurons(x, bias=True),
            "loss": lambda targets: ep.Squared(targets[:, 0]),
            "solver": ep.NewtonEFP(),
            "particles": 64,
            "most": 64,
            "hottest": 1.0,
            "seed": 0,
            "stratify": False,
            "progress": False,
            "say": print,
        }
        | changes,
    )


def test_what_is_given_is_not_searched():
    some = trainer(Y)
    assert search.search([some], 0.3, 0.2) == (some, 0.3, 0.2, [], None)


def test_few_rows_are_not_searched():
    """The temperature is a tenth of the hottest one, and l2 leaves the prior its variance of 1."""
    few = trainer(Y, rows=9, hottest=4.0)
    found = search.search([few], None, None)
    assert (found.temperature, found.l2) == pytest.approx((0.4, 0.2))
    assert found.trials == []
    assert search.search([few], 0.3, None)[1:3] == pytest.approx((0.3, 0.15))


def test_a_fifth_of_the_rows_judges_and_every_label_is_on_both_sides():
    labels = (LABELS == "yes").astype(float)
    labels[10:] = 0.0  # few rows are left of one label
    some = trainer(labels, stratify=True)
    held_out = judges.held_out_rows(some)
    members = [some.rows.y[:, 0] == label for label in (0.0, 1.0)]
    for member in members:
        assert held_out[member].sum() == int(judges.HELD_OUT * member.sum())
        assert 0 < held_out[member].sum() < member.sum()
    assert judges.held_out_rows(trainer(Y, rows=2)).sum() == 1  # at least one row judges


def test_the_path_falls_from_hot_to_cold_and_keeps_the_prior():
    model = regressor(temperature="auto", l2="auto").fit(X, Y)
    tried = np.array([trial.temperature for trial in model.search_])
    assert (np.diff(tried) < 0).all()
    assert model.temperature_ in tried
    # The temperature stops falling after PATIENCE steps without a clear improvement.
    chosen = tried.tolist().index(model.temperature_)
    assert len(tried) - 1 - chosen <= search.PATIENCE
    np.testing.assert_allclose(
        [trial.temperature / (2 * trial.l2) for trial in model.search_], search.PRIOR_VARIANCE
    )


@cache
def some_run():
    some = trainer(Y)
    return some.run(some.problem(1.0, 0.5), 1, 1, seed=0, start=None)


class Scripted(judges.Judge):
    """A judge whose losses are known: one number per temperature, from hot to cold."""

    kind = "known"

    def __init__(self, losses):
        super().__init__(judges.searched(trainer(Y)), np.ones(90), np.ones(90))
        self.script = losses

    def __call__(self, temperature, l2, start):
        trial = candidates.Trial(temperature, l2, self.script[len(self.trials)])
        self.trials.append(trial)
        # Rows differ by more than candidates do; what is paired are the differences.
        spread = 0.01 * np.cos(np.arange(90) * (1 + len(self.trials)))
        losses = trial.loss + spread - spread.mean()
        return candidates.Candidate(some_run(), trial, losses, self.weights)


@pytest.mark.parametrize(
    ("losses", "tried", "best"),
    [
        ([3, 2, 1, 1, 0], 4, 2),  # one temperature that is not clearly better ends the path
        ([3, 2, 1.9999, 0], 3, 1),  # by less than a standard error
        ([3, 3, 3, 3, 1, 2], 6, 4),  # an oscillating target is not met before it is cold
        ([1, 2, 2, 2, 2, 0], 5, 0),  # but patience ends
        ([3, 2, np.inf], 3, 1),  # or is too cold
    ],
)
def test_the_path_ends_where_it_is_no_longer_clearly_better(losses, tried, best):
    judge = Scripted(losses)
    search._find_best(judge, None, None, np.inf)
    assert len(judge.trials) == tried
    assert judge.best.trial == judge.trials[best]
    temperatures = [trial.temperature for trial in judge.trials]
    np.testing.assert_allclose(temperatures, search.LADDER[:tried])


def test_a_path_that_goes_on_from_another_one_begins_there_and_is_not_patient():
    judge = Scripted([2, 2, 1])
    search._find_best(judge, None, None, search.LADDER[3])
    assert [trial.temperature for trial in judge.trials] == list(search.LADDER[3:5])
    assert judge.hotter_than(judge.trials[1]) == judge.trials[:1]


def test_other_rows_judge_what_a_part_of_a_large_table_has_learned(monkeypatch):
    """By the predictions of the network that a fit would keep."""
    monkeypatch.setattr(judges, "MOST_SEARCHED", 45)
    monkeypatch.setattr(judges, "MOST_JUDGING", 30)
    some = trainer(Y, rows=90)
    judge = judges.Others(judges.searched(some))
    assert (len(judge.part.trainer.rows), len(judge.rows)) == (45, 30)
    learned = {tuple(row) for row in judge.part.trainer.rows.X}
    assert not learned & {tuple(row) for row in judge.rows.X}
    candidate = judge(0.05, 0.025, None)
    pooled = candidate.trained.pooled()
    predicted = some.features(judge.rows.X).average(pooled.particles, pooled.weights)
    expected = (np.asarray(predicted) - judge.rows.y[:, 0]) ** 2 / 2
    np.testing.assert_allclose(candidate.losses, expected, rtol=1e-4, atol=1e-5)
    assert candidate.trial.loss == pytest.approx(judge.rows.weights @ candidate.losses)
    assert not candidate.doubtful


def test_a_part_of_a_large_table_is_searched_at_the_same_noise_and_prior(monkeypatch):
    """n T is the noise of the kernel's limit: it is the same for the part and for all rows."""
    monkeypatch.setattr(judges, "MOST_SEARCHED", 45)
    labels = (np.arange(90) < 3).astype(float)
    some = trainer(labels, stratify=True)
    searched = judges.searched(some)
    rows = searched.trainer.rows
    assert len(rows) == searched.share * 90
    assert (rows.y == 1).sum() == 1  # half of three, rounded down
    assert rows.weights.sum() == pytest.approx(1)
    judge = judges.HeldOut(searched)
    candidate = judge(0.01, 0.02, None)
    problem = candidate.solution.problem
    assert problem.temperature * len(rows) == pytest.approx(0.01 * 90)
    assert problem.temperature / problem.l2 == pytest.approx(0.01 / 0.02)
    assert candidate.trial[:2] == (0.01, 0.02)
    small = trainer(labels, rows=45)
    assert judges.searched(small).trainer is small


def test_all_rows_get_the_particles_that_their_degrees_of_freedom_need(monkeypatch):
    """d_eff ~ T^-1/2 on the part, and so it goes on for all rows.

    The size grows with it, and where it may not, the temperature rises to what the cloud carries.
    """
    members = np.arange(90) < 9
    whole = trainer(Y, rows=90, particles=256, most=4096)
    found = Part(whole, members, degrees=[(0.4, 50.0), (0.1, 100.0)])
    # Degrees of freedom at 0.01: 100 * 10^(1/2), times CARRIED.
    grown, temperature = found.for_all(0.01)
    needed = part.CARRIED * 100 * np.sqrt(10)
    assert temperature == 0.01
    assert needed <= grown.particles < needed + part.STEP
    assert grown.particles % part.STEP == 0
    fixed = Part(replace(whole, most=768), members, degrees=found.degrees)
    smaller, temperature = fixed.for_all(0.01)
    assert smaller.particles == 768
    assert temperature == pytest.approx(0.01 * (needed / 768) ** 2)
    # It does not rise above the part's own temperature.
    assert Part(replace(whole, most=256), members, found.degrees).for_all(0.01)[1] == 0.1
    # Nothing is known of methods without degrees of freedom, and nothing changes for all rows.
    assert Part(whole, members).for_all(0.01) == (whole, 0.01)
    assert Part(whole, members | True, found.degrees).for_all(0.01) == (whole, 0.01)


def test_a_temperature_that_the_cloud_hardly_carries_is_the_last(monkeypatch):
    judge = judges.LeftOut(judges.searched(trainer(Y)))
    d_eff = judge(1.0, 0.5, None).solution.history["d_eff"][-1]
    for factor, last in ((0.99, False), (1.01, True)):
        monkeypatch.setattr(judges, "ENOUGH", float(factor * 64 / d_eff))
        judge.trials.clear()  # the same random numbers again
        assert judge(1.0, 0.5, None).last == last


@pytest.mark.slow
def test_the_fit_goes_on_from_where_all_rows_were_searched(monkeypatch):
    """The path of dual vectors is that of one prior: the last one is the solution's own."""
    found = search.search([trainer(Y, particles=128)], None, None)
    begin = found.begin
    assert begin is not None
    problem = begin.solution.problem
    assert (problem.temperature, problem.l2) == (found.temperature, found.l2)
    np.testing.assert_allclose(begin.path[-1], begin.solution.dual)
    assert len(begin.path) == [t.temperature for t in found.trials].index(found.temperature) + 1
    monkeypatch.setattr(judges, "MOST_SEARCHED", 45)
    assert search.search([trainer(Y, particles=128)], None, None).begin is None


@pytest.mark.slow
def test_leave_one_out_losses_choose_between_trainers():
    """The features that the targets are made of win, whichever trainer comes first."""
    targets = np.cos(5 * X[:90, 0])

    def of(activation, factor):
        return trainer(
            targets,
            rows=90,
            particles=256,
            features=lambda x: ep.Neurons(
                factor * x[:, :1], activation, bias=True, output_weight=True, scale=10.0
            ),
        )

    smooth, flat = of("sine", 5.0), of("tanh", 0.05)
    assert search.search([flat, smooth], None, None).trainer is smooth
    assert search.search([smooth, flat], None, None).trainer is smooth
