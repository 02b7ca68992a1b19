"""Estimators in files and pickles."""

import pickle
from dataclasses import asdict

import numpy as np
import pytest

import entroplay as ep

from .cases import ALL, LABELS, X, classifier, output, some

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


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
        # Unlike ==, this holds of two NaNs: a density has no best constant.
        np.testing.assert_equal(asdict(copy.certificate_), asdict(model.certificate_))
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
        weights = dict.fromkeys(np.unique(labels).tolist(), 2.0)
        model = classifier(class_weight=weights).fit(X, labels)
        ep.save(model, tmp_path / "model.safetensors")
        copy = ep.load(tmp_path / "model.safetensors")
        assert copy.class_weight == model.class_weight
        assert copy.predict(X).tolist() == model.predict(X).tolist()
