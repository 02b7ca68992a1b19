"""Summaries of fitted estimators: as text, in notebooks, and after a file."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn import config_context
from sklearn.exceptions import NotFittedError

import entroplay as ep

from .cases import ALL, X, Y, regressor, some

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

GOLDEN = Path(__file__).parents[1] / "golden"
PARTS = {
    "regressor": ("90 distinct rows, 2 inputs, 1 target", "temperature 0.02", "relu", "R2 0.9"),
    "classifier": ("2 inputs, 3 classes", "prior variance 1", "relu", "accuracy 0.9"),
    "density": ("90 distinct rows, 2 columns", "bandwidth 0.6", "mean log-density -2."),
}
"""What the summary of each estimator must say."""


@pytest.mark.parametrize("name", some("regressor"))
def test_a_summary_says_what_was_fitted_before_and_after_a_file(name, tmp_path):
    make, y = ALL[name]
    model = make().fit(X, y)
    text = model.summary()
    for part in (*PARTS[name], model.certificate_.verdict, " s"):
        assert part in text
    assert all(len(line) <= 120 for line in text.splitlines())
    ep.save(model, tmp_path / "small.safetensors", data=False)
    assert ep.load(tmp_path / "small.safetensors").summary() == text
    # In notebooks the same sentences follow scikit-learn's own picture.
    html = model._repr_html_()
    assert "sk-container" in html
    assert html.index("sk-container") < html.index("after its fit")
    assert model.certificate_.verdict.split(" (")[0] in html
    assert ("<svg" in html) == (len(model.history_["iteration"]) > 1)
    assert model._repr_mimebundle_()["text/html"].endswith("</div>")


@pytest.mark.parametrize("name", list(ALL))
def test_files_of_earlier_versions_have_a_shorter_summary(name):
    model = ep.load(GOLDEN / f"{name}.safetensors")
    assert model.certificate_.verdict in model.summary()
    assert "distinct rows" not in model.summary()
    assert "after its fit" in model._repr_html_()


def test_a_certificate_in_a_notebook():
    certificate = ep.load(GOLDEN / "regressor.safetensors").certificate_
    known = replace(certificate, mixed=True, reason="", bound=0.1, best_constant=0.5)
    assert "20.00% of the best constant&#x27;s loss" in known._repr_html_()
    html = replace(known, mixed=False, reason="a < b")._repr_html_()
    assert "not verified: a &lt; b" in html
    assert "best constant" not in html
    assert "islands" not in replace(known, gap=float("nan"))._repr_html_()


def test_without_a_fit_there_is_nothing_to_say():
    with pytest.raises(NotFittedError):
        regressor().summary()
    assert "after its fit" not in regressor()._repr_html_()
    with config_context(display="text"):
        assert not hasattr(regressor(), "_repr_html_")


@pytest.mark.slow
def test_a_constant_target_has_no_variance_to_explain(tmp_path):
    model = regressor().fit(X, np.full(len(X), 0.1))
    assert "R2" not in model.summary()
    ep.save(model, tmp_path / "model.safetensors")
    assert ep.load(tmp_path / "model.safetensors").summary() == model.summary()


def test_a_leave_one_out_loss_is_shown_only_where_it_can_be_trusted():
    model = regressor().fit(X, Y)
    loss = f"leave-one-out loss {model.history_['leave_one_out'][-1]:.4g}"
    assert loss in model.summary()
    model.history_["d_eff"][-1] = 80.0  # of 90 rows
    assert loss not in model.summary()
    assert "too optimistic: 80 effective degrees of freedom" in model.summary()
    del model.history_["leave_one_out"]  # solvers other than Newton's have none
    assert "new rows" not in model.summary()
