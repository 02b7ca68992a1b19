"""The certificate bounds the true distance to the optimum, or says that it is not verified."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems.cases import logistic, negative_log, squared
from verbs import independent

import entroplay as ep
from entroplay.measures.quadrature import UnresolvedError
from entroplay.verbs import certify as certify_module
from entroplay.verbs import partition
from entroplay.verbs.evidence import DISAGREEMENT, Agreement, own_cloud
from entroplay.verbs.partition import prior_log_partition


@pytest.fixture
def clouds(monkeypatch):
    """Quadrature is switched off: clouds judge problems with few parameters, too."""
    monkeypatch.setattr(partition, "QUADRATURE_DIMENSIONS", 0)


def truth(problem, solution):
    """The true suboptimality of q_g and its true gap, on the grid."""
    exact = ep.grid.solve(problem, iterations=0, points=None if problem.dim == 1 else 101)
    quadrature = exact.quadrature
    moments = np.asarray(solution.moments, np.float64)
    density, _ = quadrature.gibbs(quadrature.slope(moments))
    primal = quadrature.primal(density)
    return (
        primal - exact.value,
        primal - quadrature.dual_at(moments),
        primal,
        quadrature.dual_at(moments),
    )


@pytest.mark.parametrize(
    "dimensions",
    [pytest.param(0, id="clouds", marks=pytest.mark.slow), pytest.param(2, id="quadrature")],
)
def test_particles_that_have_not_moved_do_not_fool_it(dimensions, monkeypatch):
    """After one iteration with a tiny step the run's own gap is zero within noise."""
    monkeypatch.setattr(partition, "QUADRATURE_DIMENSIONS", dimensions)
    problem = squared(d=2)
    solution = ep.solve(
        problem, ep.EFP(0.01, ep.ULA(step_size=1e-9, steps=1)), particles=1000, iterations=1
    )
    suboptimality, _, _, _ = truth(problem, solution)
    own = solution.history["gap"][0]
    certificate = ep.certify(solution)
    assert abs(own) < 0.1 * suboptimality
    assert certificate.gibbs_bound >= suboptimality
    assert certificate.gibbs_bound > 0.05


MAKERS = {
    "squared": lambda: squared(d=2),
    "logistic": lambda: logistic(temperature=0.02, l2=0.05),
    "negative log": lambda: negative_log(temperature=0.1, l2=0.1),
}


@pytest.mark.parametrize(
    "name",
    ["squared", *(pytest.param(n, marks=pytest.mark.slow) for n in MAKERS if n != "squared")],
)
def test_by_quadrature_the_gap_is_the_true_one(name):
    problem = MAKERS[name]()
    solution = ep.solve(problem, particles=100, iterations=6)
    suboptimality, gap, primal, dual = truth(problem, solution)
    certificate = ep.certify(solution)
    assert certificate.mixed
    assert certificate.gap_error < 1e-6
    assert certificate.gap == certificate.gap_debiased
    assert certificate.gap == pytest.approx(gap, rel=1e-4, abs=certificate.gap_error)
    assert certificate.primal == pytest.approx(primal, abs=1e-7)
    assert certificate.dual == pytest.approx(dual, abs=1e-7)
    assert suboptimality <= certificate.bound
    assert ep.certify(solution, seed=1, particles=8, budget=1) == certificate
    first, second, _ = repr(certificate).splitlines()
    assert first.endswith("above the global optimum (by quadrature)")
    assert second.endswith("by quadrature")


@pytest.mark.slow
def test_what_quadrature_does_not_resolve_is_not_verified(monkeypatch):
    def refuse(*_):
        raise UnresolvedError

    monkeypatch.setattr(certify_module, "gibbs_moments", refuse)
    certificate = ep.certify(ep.solve(squared(d=2), particles=1000, iterations=30))
    assert not certificate.mixed
    assert certificate.islands == 8
    assert certificate.reason == "quadrature does not resolve the measure"
    # Only a bound that leans on no cloud is left.
    assert (certificate.measure, certificate.lower_bound) == ("mixture", "zero dual")


@pytest.mark.parametrize("number", [0, 8])
def test_a_mode_that_all_clouds_miss_is_in_the_certificate(number):
    """The mass of q_g may be far from the prior, hundreds of nats deeper than all clouds.

    The cloud of a short run of EFP has not gone there; the gaps of its dual are 18 and 74.
    """
    rng = np.random.default_rng(number)
    x = rng.normal(size=8) * rng.choice([0.5, 1, 2])
    temperature = 10 ** rng.uniform(np.log10(2e-3), np.log10(3e-2))
    variance = 10 ** rng.uniform(-1.5, 1)
    problem = ep.FiniteSum(
        ep.Neurons(x[:, None], scale=2.0),
        ep.Squared(x**2 / 3, scale=20.0),
        temperature=temperature,
        l2=temperature / (2 * variance),
    )
    solution = ep.solve(problem, ep.EFP(0.1, ep.MALA(steps=5)), particles=64, iterations=30)
    certificate = ep.certify(solution)
    rows, targets = (np.float32(a).astype(np.float64) for a in (x, x**2 / 3))
    own = independent.Problem("tanh", rows, "squared", targets, temperature, variance, 1, 2.0, 20.0)
    below, above, _ = independent.bracket(own, np.asarray(solution.moments, np.float64))
    assert above - below > 10
    assert certificate.mixed
    assert certificate.gibbs_bound >= (above - below) * (1 - 1e-5)
    assert certificate.gap == pytest.approx(above - below, rel=1e-5, abs=1e-9)
    # The explicit mixture knows better, and its bound is above its own distance from the optimum.
    exact = ep.grid.solve(problem, iterations=0)
    assert certificate.measure == "mixture"
    error = exact.error.value + 3 * certificate.primal_error
    assert certificate.primal - exact.value <= certificate.bound + error


@pytest.mark.parametrize("name", list(MAKERS))
@pytest.mark.slow
@pytest.mark.usefixtures("clouds")
def test_bounds_hold_over_twenty_seeds(name):
    """Seeds 0 to 19, none picked.

    The ten runs of six iterations have not reached the optimum yet, those of thirty have.
    """
    problem = MAKERS[name]()
    below, close = 0, 0
    for seed in range(20):
        solution = ep.solve(problem, particles=200, iterations=6 if seed % 2 else 30, seed=seed)
        suboptimality, gap, _, dual = truth(problem, solution)
        certificate = ep.certify(solution, seed=seed)
        below += suboptimality <= certificate.gibbs_bound
        close += abs(certificate.gap_debiased - gap) <= 3 * certificate.gap_error
        if certificate.lower_bound == "dual":
            assert certificate.dual == pytest.approx(dual, abs=1e-5 + 5 * certificate.dual_error)
    assert below >= 19
    assert close >= 18


@pytest.mark.slow
@pytest.mark.usefixtures("clouds")
def test_a_cold_problem_with_many_modes_is_not_verified():
    """Four deep wells at very low temperature; the particles stay where the prior put them."""
    velocities = np.repeat([-6.0, -2.0, 2.0, 6.0], [1, 12, 3, 9]) + np.tile(
        [-0.05, 0.0, 0.05, 0.1, -0.1], 5
    )
    problem = ep.FiniteSum(
        ep.GaussianKernel(velocities, bandwidth=0.3), ep.NegLog(), temperature=1e-3, l2=1e-4
    )
    solution = ep.solve(
        problem, ep.EFP(0.05, ep.ULA(step_size=1e-4, steps=5)), particles=300, iterations=100
    )
    certificate = ep.certify(solution, particles=100, budget=20)
    assert not certificate.mixed
    assert certificate.reason
    # The bound is then that of an explicit mixture, which needs no clouds.
    assert certificate.measure == "mixture"
    assert certificate.lower_bound == "zero dual"


@pytest.mark.slow
def test_clouds_are_right_or_not_verified_where_hundreds_of_modes_are_cold(monkeypatch):
    """A narrow kernel at very low temperature: islands may miss what the run found."""
    rng = np.random.default_rng(0)
    centres = np.array([[-1.5, 0.0], [1.5, 0.5], [0.0, 1.5]])
    X = centres[rng.integers(0, 3, 100)] + 0.4 * rng.normal(size=(100, 2))
    problem = ep.FiniteSum(
        ep.GaussianKernel(X, bandwidth=0.2), ep.NegLog(), temperature=3e-3, l2=3e-4
    )
    solution = ep.solve(problem, particles=500, iterations=60)
    exact = ep.certify(solution)
    assert exact.method == "quadrature"
    monkeypatch.setattr(partition, "QUADRATURE_DIMENSIONS", 0)
    certificate = ep.certify(solution, particles=250, budget=50)
    assert not certificate.mixed or certificate.gibbs_bound >= exact.gap - 2 * exact.gap_error


@pytest.mark.slow
def test_the_papers_setting_agrees_with_two_million_prior_draws():
    """log Z_g of the paper's network, by importance sampling with 2 million draws of the prior."""
    problem = ep.teacher.paper_network()
    solution = ep.solve(problem, iterations=30)
    certificate = ep.certify(solution)
    logs = []
    weigh = jax.jit(
        lambda key: (
            -problem.features.potential(problem.prior(key, 50_000), problem.weigh(solution.dual))
            / 0.01
        )
    )
    for batch in range(40):
        logs.append(np.asarray(weigh(jax.random.key(1000 + batch)), np.float64))
    logs = np.stack(logs)
    weights = np.exp(logs - logs.max())
    means = weights.mean(axis=1)
    reference = prior_log_partition(problem) + logs.max() + np.log(means.mean())
    error = means.std(ddof=1) / means.mean() / np.sqrt(40)
    total_error = np.hypot(certificate.log_partition_error, error)
    assert abs(certificate.log_partition - reference) < 3 * total_error
    assert certificate.primal - certificate.dual == pytest.approx(certificate.gap_debiased)


@pytest.mark.slow
def test_tolerance_goes_through_a_certificate():
    problem = squared(d=2)
    solution = ep.solve(problem, particles=500, iterations=600, tolerance=1e-4)
    assert solution.status == "converged"
    assert "certified" in solution.status.message
    assert len(solution.history["iteration"]) < 600
    suboptimality, _, _, _ = truth(problem, solution)
    assert suboptimality <= 1e-4
    # A gap that is small only because the particles hardly move does not end the run.
    stuck = ep.solve(
        problem,
        ep.EFP(0.01, ep.ULA(step_size=1e-9, steps=1)),
        particles=500,
        iterations=40,
        tolerance=1e-3,
    )
    assert stuck.status == "iterations"


@pytest.fixture(scope="module")
def settled():
    """A run that has reached the optimum, and its certificate by clouds.

    Of the size of the run above, which shares its program.
    """
    solution = ep.solve(squared(d=2), particles=1000, iterations=30)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition, "QUADRATURE_DIMENSIONS", 0)
        return solution, ep.certify(solution)


@pytest.mark.usefixtures("clouds")
def test_a_certificate_reads_as_three_lines(settled):
    _, certificate = settled
    lines = repr(certificate).splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("Certificate: at most")
    assert "by importance sampling from the prior" in lines[2]
    again = ep.certify(ep.solve(squared(d=2), particles=1000, iterations=30))
    assert again == certificate  # the same seed, the same numbers


def test_the_verdict_is_one_sentence_and_the_first_line(settled):
    _, certificate = settled
    assert certificate.mixed
    bound = f"at most {certificate.bound:.3g} above the global optimum"
    assert certificate.verdict == f"{bound} (the clouds agree)"
    doubtful = dataclasses.replace(certificate, mixed=False, reason="the clouds disagree")
    assert doubtful.verdict == f"{bound} (not verified: the clouds disagree)"
    for each in (certificate, doubtful):
        assert repr(each).splitlines()[0] == f"Certificate: {each.verdict}"


@pytest.mark.slow
@pytest.mark.usefixtures("clouds")
def test_the_path_is_the_recorded_one_unless_another_is_given(settled):
    solution, certificate = settled
    assert len(solution.path) > 2
    for same in (solution.path, np.asarray(solution.path, np.float64)):
        assert ep.certify(solution, path=same) == certificate
    # Half the dual leads to the same measure: other numbers, the same value within their errors.
    other = ep.certify(solution, path=solution.dual[None] / 2)
    assert other.mixed
    assert other != certificate
    error = np.hypot(other.gap_error, certificate.gap_error)
    assert abs(other.gap_debiased - certificate.gap_debiased) < 4 * error


@pytest.mark.parametrize(
    ("path", "got"),
    [
        (np.zeros(12), "(12,)"),
        (np.zeros((3, 5)), "(3, 5)"),
        (np.zeros((3, 12, 1)), "(3, 12, 1)"),
        (np.zeros((25, 12)), "(25, 12)"),
        (np.full((2, 12), np.nan), "nan"),
        ("all", "'all'"),
    ],
    ids=["one vector", "other rows", "channels", "too many", "NaN", "text"],
)
def test_a_path_that_does_not_fit_is_refused(path, got, settled):
    with pytest.raises(ValueError, match="'path' parameter of certify must be") as caught:
        ep.certify(settled[0], path=path)
    assert got in str(caught.value)


AGREEING = Agreement(masses=1.0, between=1.0, independent=1.0, distance=1.0, expected=1.0)


@pytest.mark.parametrize(
    ("changes", "objection"),
    [
        ({}, ""),
        ({"masses": 0.5, "between": DISAGREEMENT, "distance": DISAGREEMENT}, ""),
        ({"masses": 0.49}, "the islands disagree about the mass"),
        ({"between": np.nan}, "the islands disagree about the mass"),
        ({"distance": np.inf}, "the islands disagree about the mass"),
        ({"between": 1.01 * DISAGREEMENT}, "the islands' moments differ"),
        ({"distance": 1.01 * DISAGREEMENT}, "the run's own cloud and the islands disagree"),
    ],
)
def test_clouds_agree_up_to_a_factor_of_what_noise_explains(changes, objection):
    found = AGREEING._replace(**changes).objection
    assert found.startswith(objection)
    assert bool(found) == bool(objection)


@pytest.mark.parametrize(
    ("argument", "value"), [("particles", 3), ("budget", 0), ("seed", -1), ("seed", 2**32)]
)
def test_bad_arguments(argument, value):
    solution = ep.solve(squared(), ep.MFLD(0.1), particles=50, iterations=2)
    with pytest.raises(ValueError, match=f"'{argument}' parameter of certify must be"):
        ep.certify(solution, **{argument: value})


def test_a_solution_without_its_data_cannot_be_certified_or_continued(tmp_path):
    solution = ep.solve(squared(), ep.MFLD(0.1), particles=50, iterations=2)
    ep.save(solution, tmp_path / "bare.ep", data=False)
    bare = ep.load(tmp_path / "bare.ep")
    with pytest.raises(ValueError, match="saved without its data"):
        ep.certify(bare)
    with pytest.raises(ValueError, match="saved without its data"):
        ep.solve(bare.problem, particles=50, iterations=2)


def test_a_weighted_cloud_is_represented_by_its_weights():
    """Evenly spaced points with the weights of a normal law become 512 draws at its quantiles."""
    particles = np.linspace(-8, 8, 4001)[:, None]
    weights = np.exp(-0.5 * particles[:, 0] ** 2)
    weights /= weights.sum()
    drawn = np.asarray(own_cloud(jnp.asarray(particles), jnp.asarray(weights)))
    assert drawn.shape == (512, 1)
    # Each quantile is off by at most half the spacing of 0.004. The mass of 1/512 between two of
    # them is symmetric and lowers the variance, which loses its tails, by a hundredth.
    assert abs(drawn.mean()) < 0.004
    assert drawn.std() == pytest.approx(1, abs=0.01)
    even = jnp.asarray(particles), jnp.full(4001, 1 / 4001)
    assert own_cloud(*even) is even[0]
