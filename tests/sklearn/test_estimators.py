"""The scikit-learn estimators: conventions, known answers, laws, and honest certificates."""

import pickle
import warnings

import jax
import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

import entroplay as ep
from entroplay.problems.datasets.real import load
from entroplay.sklearn import MeanFieldClassifier, MeanFieldDensity, MeanFieldRegressor
from entroplay.sklearn.bandwidth import log_density
from entroplay.sklearn.coordinates import Coordinates
from entroplay.sklearn.fit import Trainer
from entroplay.sklearn.rows import bucket, merge
from entroplay.sklearn.scaling import Standardiser
from entroplay.verbs.solve import _colder

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(90, 2))
Y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]
LABELS = np.array(["no", "yes"])[(X[:, 0] * X[:, 1] > 0).astype(int)]
KINDS = np.array(["a", "b", "c"])[np.digitize(X[:, 0] + X[:, 1], [-0.7, 0.7])]
SMALL = {"temperature": 0.02, "l2": 0.01, "particles": 64, "max_iter": 16, "random_state": 0}


def regressor(**changes):
    return MeanFieldRegressor(**(SMALL | changes))


def classifier(**changes):
    return MeanFieldClassifier(**(SMALL | changes))


def density(**changes):
    return MeanFieldDensity(**({"bandwidth": 0.6, "particles": 512, "random_state": 0} | changes))


ALL = {"regressor": (regressor, Y), "classifier": (classifier, KINDS), "density": (density, None)}


def some(*always):
    """All three estimators. Those not named here are slow tests: each compiles its own programs."""
    return [pytest.param(name, marks=() if name in always else pytest.mark.slow) for name in ALL]


def output(model, rows):
    return (
        model.score_samples(rows)
        if isinstance(model, MeanFieldDensity)
        else getattr(model, "predict_proba", model.predict)(rows)
    )


FIT_NOTHING = (
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_estimator_tags_renamed",
    "check_estimators_unfitted",
    "check_get_params_invariance",
    "check_mixin_order",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_set_params",
    "check_valid_tag_types",
)


def checks():
    """All checks of scikit-learn, with the default settings.

    Almost every check compiles for another shape, ten minutes in all: `make test` runs only those
    that fit nothing.
    """
    for default in (MeanFieldRegressor(), MeanFieldClassifier(), MeanFieldDensity()):
        for estimator, check in estimator_checks_generator(default):
            name = getattr(check, "func", check).__name__
            marks = [] if name in FIT_NOTHING else [pytest.mark.slow]
            yield pytest.param(estimator, check, id=f"{type(default).__name__}-{name}", marks=marks)


@pytest.mark.parametrize(("estimator", "check"), list(checks()))
def test_every_check_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.slow
def test_a_smooth_function_is_learned_with_the_defaults():
    model = MeanFieldRegressor(random_state=0).fit(X[:60], Y[:60])
    # Noise-free, 60 rows: the best constant has 0, a ridge regression 0.55.
    assert model.score(X[60:], Y[60:]) > 0.85
    tried = [trial.temperature for trial in model.search_]
    assert model.temperature_ in tried
    assert len(tried) >= 4
    assert model.duality_gap_ == model.certificate_.bound
    assert len(model.history_["gap"]) == model.n_iter_
    assert model.particles_.shape == model.solution_.particles.shape == (4096, 4)


@pytest.mark.slow
@pytest.mark.parametrize("labels", [LABELS, KINDS], ids=["two", "three"])
def test_probabilities_sum_to_one_and_agree_with_the_scores(labels):
    model = classifier().fit(X, labels)
    shares, scores = model.predict_proba(X), model.decision_function(X)
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-12)
    odds = np.log(shares[:, 1] / shares[:, 0])
    np.testing.assert_allclose(
        odds, scores if scores.ndim == 1 else scores[:, 1] - scores[:, 0], atol=1e-9
    )
    assert model.score(X, labels) > 0.8
    assert (model.predict(X) == model.classes_[shares.argmax(axis=1)]).all()


@pytest.mark.slow
def test_several_targets_are_learned_at_once():
    both = regressor(particles=256).fit(X, np.stack([Y, 100 - 30 * Y], axis=1))
    prediction = both.predict(X)
    assert prediction.shape == (90, 2)
    # The second is a linear image of the first, and both are standardised: to the network they are
    # the same target up to sign.
    correlation = np.corrcoef(prediction[:, 0], prediction[:, 1])[0, 1]
    assert correlation < -0.95
    assert both.score(X, np.stack([Y, 100 - 30 * Y], axis=1)) > 0.7


@pytest.mark.slow
def test_huber_is_not_led_astray_by_outliers():
    spoiled = Y.copy()
    spoiled[::10] += 40
    squared, huber = (
        regressor(loss=loss, particles=256, epsilon=0.3).fit(X, spoiled)
        for loss in ("squared", "huber")
    )
    clean = np.ones(len(Y), bool)
    clean[::10] = False
    errors = [np.abs(model.predict(X)[clean] - Y[clean]).mean() for model in (squared, huber)]
    assert errors[1] < errors[0] / 2


@pytest.mark.parametrize("name", some("regressor"))
def test_a_weight_is_a_number_of_repetitions_to_the_last_bit(name):
    make, y = ALL[name]
    weights = RNG.integers(0, 3, size=len(X))
    order = RNG.permutation(np.repeat(np.arange(len(X)), weights))
    weighted = make().fit(X, y, sample_weight=weights)
    repeated = make().fit(X[order], None if y is None else y[order])
    np.testing.assert_array_equal(output(weighted, X), output(repeated, X))


def test_padding_adds_nothing():
    rows = merge(X, Y[:, None], np.ones(len(X)))
    trainer = Trainer(
        rows,
        lambda x: ep.Neurons(x, bias=True),
        lambda y: ep.Squared(y[:, 0]),
        ep.NewtonEFP(),
        64,
        1.0,
        0,
        False,
        False,
        print,
    )
    padded = trainer.problem(0.1, 0.1)
    plain = ep.FiniteSum(
        ep.Neurons(rows.X, bias=True), ep.Squared(rows.y[:, 0]), temperature=0.1, l2=0.1
    )
    cloud = plain.prior(jax.random.key(0), 50)
    potentials = []
    for problem in (padded, plain):
        moments = problem.features.average(cloud)
        potentials.append(problem.features.potential(cloud, problem.weigh(problem.slope(moments))))
        potentials.append(problem.empirical_loss(moments))
    assert padded.features.shape == (128,)
    np.testing.assert_allclose(potentials[0], potentials[2], atol=1e-6)
    np.testing.assert_allclose(potentials[1], potentials[3], rtol=1e-6)


def test_a_hotter_solution_is_one_of_a_fraction_of_the_loss():
    """U_hot / T_hot = U_beta / T_cold for equal priors; beta = T_cold / T_hot scales the dual."""
    hot, cold = (
        ep.FiniteSum(ep.Neurons(X), ep.Squared(Y), temperature=t, l2=t / 6) for t in (0.3, 0.12)
    )
    start = ep.solve(hot, particles=64, iterations=2)
    beta = _colder(cold, start)
    energies = [ep.Gibbs(hot, start.dual).energy(start.particles) / 0.3]
    energies.append(ep.Gibbs(cold, beta * start.dual).energy(start.particles) / 0.12)
    np.testing.assert_allclose(energies[0], energies[1], rtol=1e-4, atol=1e-4)
    assert _colder(hot, ep.solve(cold, particles=64, iterations=1)) is None
    other_prior = ep.FiniteSum(ep.Neurons(X), ep.Squared(Y), temperature=0.12, l2=0.05)
    assert _colder(other_prior, start) is None


def test_shapes_grow_by_a_quarter_at_most():
    sizes = np.array([bucket(n) for n in range(1, 5000)])
    assert (sizes >= np.arange(1, 5000)).all()
    assert (sizes[127:] / np.arange(128, 5000) < 1.25).all()
    assert len(set(sizes.tolist())) < 25


def test_the_second_fit_of_the_same_shape_compiles_nothing():
    """Nor do a fit with a few rows less and predictions for another number of rows."""
    compiled = []
    model = regressor(temperature="auto", l2="auto").fit(X, Y)
    model.predict(X)
    model.predict(X[:5])

    def listen(event, duration, **details):
        if "backend_compile" in event:
            compiled.append(details)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        again = clone(model).set_params(random_state=1).fit(X[:85], Y[:85])
        again.predict(X[:70])
        again.predict(X[:3])
    finally:
        jax.monitoring.clear_event_listeners()
    assert compiled == []


@pytest.mark.slow
def test_a_balanced_weight_gives_every_class_the_same_total():
    rare = np.where(np.arange(90) < 9, "rare", "common")
    balanced = classifier(class_weight="balanced").fit(X, rare)
    by_hand = classifier(class_weight={"rare": 5.0, "common": 5 / 9}).fit(X, rare)
    np.testing.assert_allclose(output(balanced, X), output(by_hand, X), atol=1e-6)
    plain = classifier().fit(X, rare)
    assert balanced.predict_proba(X)[:, 1].mean() > plain.predict_proba(X)[:, 1].mean() + 0.1


@pytest.mark.slow
def test_a_warm_start_goes_on_from_where_the_last_fit_stopped():
    cold = regressor(temperature="auto").fit(X, Y)
    warm = clone(cold).set_params(warm_start=True).fit(X, Y)
    first = warm.temperature_
    warm.fit(X, Y)
    assert warm.temperature_ == first
    assert warm.search_ == []
    assert (warm.history_["beta"] == 1).all()  # the loss need not be turned on again
    assert cold.history_["beta"][0] < 1
    assert warm.score(X, Y) > cold.score(X, Y) - 0.05
    with pytest.raises(
        ValueError, match="warm_start=True needs MeanFieldRegressor to have as many inputs"
    ):
        warm.fit(X[:, :1], Y)


@pytest.mark.parametrize("name", some("regressor"))
def test_a_fit_above_tol_warns_and_says_what_to_do(name):
    make, y = ALL[name]
    with pytest.warns(
        ConvergenceWarning,
        match=r"above tol=1e-09\. Raise max_iter or particles, or the temperature",
    ):
        make(tol=1e-9).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make(tol=10.0).fit(X, y)


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["efp", "mfld", ep.MFLD(0.05)])
def test_other_solvers_fit_too(solver):
    """With bounded neurons, which methods need that meet the whole loss from the start."""
    model = regressor(solver=solver, max_iter=600, particles=256, tol=10.0).fit(X, Y)
    assert model.solution_.problem.features.activation == "tanh"
    assert model.score(X, Y) > 0.5  # the best constant has 0


# -- density ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_density_integrates_to_one():
    galaxies = load("galaxies") / 1000
    model = density(bandwidth=0.3).fit(galaxies)
    grid = np.linspace(-20, 70, 20001)
    assert np.trapezoid(np.exp(model.score_samples(grid[:, None])), grid) == pytest.approx(
        1, abs=1e-9
    )


@pytest.fixture(scope="module")
def fitted_density():
    return density().fit(X)


@pytest.mark.slow
def test_another_unit_shifts_the_log_density(fitted_density):
    other = density().fit(4 * X + 8)
    np.testing.assert_allclose(
        other.score_samples(4 * X + 8), fitted_density.score_samples(X) - 2 * np.log(4), rtol=1e-9
    )


def test_draws_have_the_moments_of_the_mixture(fitted_density):
    """The mean is that of the locations; the covariance is theirs plus that of the kernel."""
    model, n = fitted_density, 40_000
    draws = model.sample(n, random_state=1)
    mean = model.weights_ @ model.locations_
    covariance = np.cov(model.locations_.T, aweights=model.weights_, bias=True) + model.covariance_
    deviation = np.sqrt(np.diag(covariance))
    # Four standard errors. That of a mean is deviation / sqrt(n). That of a variance is at most
    # sqrt(E x^4 / n), and E x^4 <= 6 deviation^4 here (3 for a normal law).
    assert (np.abs(draws.mean(axis=0) - mean) < 4 * deviation / np.sqrt(n)).all()
    bound = 4 * np.sqrt(6 / n) * deviation[:, None] * deviation[None, :]
    assert (np.abs(np.cov(draws.T) - covariance) < bound).all()
    assert model.score(draws) == pytest.approx(np.mean(model.score_samples(draws)))


def test_the_solution_of_a_density_can_be_certified_again(fitted_density):
    again = ep.certify(fitted_density.solution_, seed=7)
    assert again.mixed
    assert again.bound < 0.1
    assert "on weighted points" in repr(fitted_density.solution_)


def test_far_out_the_log_density_is_finite(fitted_density):
    assert np.isfinite(fitted_density.score_samples([[1e3, -1e3]])).all()
    exact = -0.5 * (30.0 / 0.5) ** 2 - np.log(0.5 * np.sqrt(2 * np.pi))
    assert log_density(np.zeros((1, 1)), np.ones(1), np.array([[30.0]]), 0.5)[0] == pytest.approx(
        exact, rel=1e-12
    )


def test_the_local_shape_is_that_within_clusters():
    """Two long thin clusters side by side: they extend in one direction, all rows in the other."""
    within = RNG.normal(size=(400, 2)) * [3.0, 0.3]
    rows = within + np.where(np.arange(400) < 200, 6.0, -6.0)[:, None] * np.array([0.0, 1.0])
    weights = np.full(400, 1 / 400)
    local, whole = (
        np.linalg.inv(Coordinates.of(rows, weights, shape).axes) for shape in ("local", "full")
    )
    local, whole = local.T @ local, whole.T @ whole
    assert local[0, 0] / local[1, 1] > 20  # 100 within a cluster
    assert whole[0, 0] / whole[1, 1] < 1  # 9 / 36 over all


def test_coordinates_make_the_kernel_a_ball_and_can_be_undone():
    rows = RNG.normal(size=(60, 3)) @ RNG.normal(size=(3, 3)) + 5
    coordinates = Coordinates.of(rows, np.full(60, 1 / 60), "full")
    moved = coordinates(rows)
    np.testing.assert_allclose(
        np.cov(moved.T, bias=True), np.eye(3), atol=1e-4
    )  # the ridge of 1e-6
    np.testing.assert_allclose(coordinates.undo(moved), rows, rtol=1e-9)


@pytest.mark.slow
def test_the_bandwidth_is_found_by_cross_validation():
    two = np.concatenate([RNG.normal(-4, 0.5, 60), RNG.normal(4, 0.5, 60)])[:, None]
    model = MeanFieldDensity(random_state=0).fit(two)
    widths, likelihoods = np.array(model.search_).T
    assert model.bandwidth_ == widths[likelihoods.argmax()]
    # Two well separated normals of deviation 0.5; in units of the deviation of all rows (4.03),
    # that is about 0.12.
    assert 0.04 < model.bandwidth_ < 0.25
    # The best possible score is minus the entropy of the truth, -log 2 - log(0.5) - 1.419 = -1.42.
    assert model.score(two) > -1.6


def test_a_standardiser_ignores_constant_columns():
    rows = np.stack([np.arange(5.0), np.full(5, 0.1)], axis=1)
    standard = Standardiser.of(rows, np.full(5, 0.2))
    np.testing.assert_allclose(standard(rows)[:, 1], 0, atol=1e-15)
    np.testing.assert_allclose(standard.undo(standard(rows)), rows, atol=1e-12)


def suboptimality(model):
    """The true distance to the optimum, by quadrature."""
    exact = ep.grid.solve(model.solution_.problem, iterations=0, points=101)
    moments = np.asarray(model.solution_.moments, np.float64)
    optimal, _ = exact.quadrature.gibbs(exact.quadrature.slope(moments))
    return exact.quadrature.primal(optimal) - exact.value


@pytest.mark.parametrize("seed", range(2))
def test_the_bound_is_above_the_truth(seed):
    model = density(max_iter=1 + 20 * seed, random_state=seed, tol=10.0).fit(X)
    assert 0 <= suboptimality(model) <= model.duality_gap_ < 1


@pytest.mark.slow
def test_the_bound_is_above_the_truth_in_nineteen_of_twenty_seeds():
    """Seeds 0 to 19, none of them selected; every other fit has a small support."""
    rows = load("faithful")
    fits = [
        MeanFieldDensity(0.5, random_state=seed, particles=200 if seed % 2 else 8192).fit(rows)
        for seed in range(20)
    ]
    assert sum(suboptimality(model) <= model.duality_gap_ for model in fits) >= 19


# -- files, frames, pipelines, bad arguments -------------------------------------------------------


@pytest.mark.parametrize("name", some("regressor"))
def test_files_and_pickles_keep_everything(name, tmp_path):
    make, y = ALL[name]
    model = make().fit(X, y)
    ep.save(model, tmp_path / "model.safetensors")
    ep.save(model, tmp_path / "small.safetensors", data=False)
    copies = [
        ep.load(tmp_path / "model.safetensors"),
        ep.load(tmp_path / "small.safetensors"),
        pickle.loads(pickle.dumps(model)),
    ]
    for copy in copies:
        assert type(copy) is type(model)
        assert copy.get_params() == model.get_params()
        assert copy.certificate_ == model.certificate_
        assert copy.duality_gap_ == model.duality_gap_
        np.testing.assert_array_equal(output(copy, X), output(model, X))
    assert len(copies[1].solution_.moments) == 0
    assert copies[0].solution_.moments.shape == model.solution_.moments.shape
    with pytest.raises(ValueError, match="random_state is a RandomState, which no file can hold"):
        ep.save(
            model.set_params(random_state=np.random.RandomState(0)), tmp_path / "other.safetensors"
        )


@pytest.mark.slow
def test_labels_of_any_kind_survive_a_file(tmp_path):
    for labels in (LABELS == "yes", (LABELS == "yes") * 7 - 3, LABELS.astype(object)):
        model = classifier(class_weight=dict.fromkeys(np.unique(labels).tolist(), 2.0)).fit(
            X, labels
        )
        ep.save(model, tmp_path / "model.safetensors")
        copy = ep.load(tmp_path / "model.safetensors")
        assert copy.class_weight == model.class_weight
        assert copy.predict(X).tolist() == model.predict(X).tolist()


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_data_frames_bring_their_names(library):
    frames = pytest.importorskip(library)
    frame = frames.DataFrame({"left": X[:, 0], "right": X[:, 1]})
    model = regressor().fit(frame, Y)
    assert model.feature_names_in_.tolist() == ["left", "right"]
    np.testing.assert_array_equal(model.predict(frame), regressor().fit(X, Y).predict(X))
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame[["right", "left"]])


@pytest.mark.slow
def test_pipelines_searches_and_routed_weights():
    weights = np.ones(len(X))
    with config_context(enable_metadata_routing=True):
        model = (
            regressor().set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        )
        pipeline = make_pipeline(MinMaxScaler(), model)
        search = GridSearchCV(pipeline, {"meanfieldregressor__temperature": [0.02, 1.0]}, cv=3)
        search.fit(X, Y, sample_weight=weights)
    assert search.best_params_ == {"meanfieldregressor__temperature": 0.02}


@pytest.mark.slow
def test_a_search_in_two_processes():
    search = GridSearchCV(classifier(), {"temperature": [0.02, 1.0]}, cv=3, n_jobs=2).fit(X, LABELS)
    assert search.best_params_ == {"temperature": 0.02}


def test_data_that_cannot_be_written_to():
    frozen, targets = X.copy(), Y.copy()
    frozen.setflags(write=False)
    targets.setflags(write=False)
    regressor().fit(frozen, targets).predict(frozen)


@pytest.mark.parametrize(
    ("make", "y", "change", "message"),
    [
        (
            regressor,
            Y,
            {"temperature": 0.0},
            "'temperature' parameter of MeanFieldRegressor must be a finite positive number",
        ),
        (
            regressor,
            Y,
            {"l2": "none"},
            "'l2' parameter of MeanFieldRegressor must be a positive number or 'auto'. Got 'none'",
        ),
        (
            regressor,
            Y,
            {"particles": 4},
            "'particles' parameter of MeanFieldRegressor must be a whole number >= 8",
        ),
        (regressor, Y, {"particles": "many"}, "'particles' parameter .* or 'auto'. Got 'many'"),
        (
            regressor,
            Y,
            {"loss": "absolute"},
            "'loss' parameter of MeanFieldRegressor must be one of 'squared', 'huber'",
        ),
        (
            regressor,
            Y,
            {"activation": "step"},
            "'activation' parameter of MeanFieldRegressor must be one of 'auto', 'tanh'",
        ),
        (
            regressor,
            Y,
            {"solver": "adam"},
            "'solver' parameter of MeanFieldRegressor must be one of 'newton'",
        ),
        (regressor, Y, {"tol": -1}, "'tol' parameter of MeanFieldRegressor"),
        (regressor, Y, {"max_iter": 0}, "'max_iter' parameter of MeanFieldRegressor"),
        (
            classifier,
            KINDS,
            {"class_weight": "even"},
            "'class_weight' parameter of MeanFieldClassifier must be None, 'balanced'",
        ),
        (classifier, KINDS, {"class_weight": {"z": 1.0}}, r"for classes among \['a', 'b', 'c'\]"),
        (classifier, KINDS, {"class_weight": {"a": -1.0}}, "made of non-negative numbers"),
        (
            classifier,
            np.full(90, "a"),
            {},
            "needs rows of at least two classes; y has one class only",
        ),
        (
            density,
            None,
            {"bandwidth": 0},
            "'bandwidth' parameter of MeanFieldDensity must be a finite positive number",
        ),
        (
            density,
            None,
            {"covariance": "tied"},
            "'covariance' parameter of MeanFieldDensity must be one of 'local', 'full', 'diag'",
        ),
    ],
)
def test_bad_settings_are_named(make, y, change, message):
    with pytest.raises(ValueError, match=message):
        make(**change).fit(X, y)


def test_bad_data_are_refused_as_scikit_learn_does():
    from scipy.sparse import csr_array

    with pytest.raises(TypeError, match="Sparse data was passed"):
        regressor().fit(csr_array(X), Y)
    with pytest.raises(ValueError, match="Input X contains NaN"):
        density().fit(np.where(X > 2, np.nan, X))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        classifier().fit(X, LABELS[:-1])
    with pytest.raises(ValueError, match="X has 3 features, but MeanFieldRegressor is expecting 2"):
        regressor().fit(X, Y).predict(np.ones((4, 3)))
    with pytest.raises(ValueError, match="Unknown label type"):
        classifier().fit(X, Y)
