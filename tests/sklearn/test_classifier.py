"""The classifier: probabilities, scores, and weights of classes."""

import numpy as np
import pytest

from .cases import KINDS, LABELS, X, classifier, output

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


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
def test_a_balanced_weight_gives_every_class_the_same_total():
    rare = np.where(np.arange(90) < 9, "rare", "common")
    balanced = classifier(class_weight="balanced").fit(X, rare)
    by_hand = classifier(class_weight={"rare": 5.0, "common": 5 / 9}).fit(X, rare)
    np.testing.assert_allclose(output(balanced, X), output(by_hand, X), atol=1e-6)
    plain = classifier().fit(X, rare)
    assert balanced.predict_proba(X)[:, 1].mean() > plain.predict_proba(X)[:, 1].mean() + 0.1
