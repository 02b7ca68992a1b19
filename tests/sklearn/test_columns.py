"""Columns as they are: matrices written out by hand, and laws."""

import datetime

import numpy as np
import pytest

import entroplay as ep
from entroplay.runs.codec import Decoder, Encoder
from entroplay.sklearn.columns import ColumnError, Columns
from entroplay.sklearn.columns.categories import MOST_LEVELS
from entroplay.sklearn.columns.date_texts import day_of, order_of
from entroplay.sklearn.inputs import raw_column

from .cases import classifier, regressor

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

NAN = np.nan


def texts(*entries):
    return np.array(entries, object)


TABLE = {
    "width": np.array([1.0, NAN, 3.0, 5.0]),
    "colour": texts("red", "blue", None, "red"),
    "sold": texts("2019-12-31", "2020-01-01", "2020-01-01", None),
    "unit": texts("cm", "cm", "cm", "cm"),
    "height": np.array([1.0, 2.0, np.inf, -np.inf]),
}
RECIPE = Columns.learn(TABLE)


def test_the_matrix_of_a_small_table():
    assert RECIPE.names == [
        *("width", "width is missing"),
        *("colour = blue", "colour = red", "colour is missing"),
        *("sold: year", "sold: month", "sold: weekday", "sold: days", "sold is missing"),
        "height",
    ]
    expected = [
        [1, 0, 0, 1, 0, 2019, 12, 1, 0, 0, 1],
        [3, 1, 1, 0, 0, 2020, 1, 2, 1, 0, 2],
        [3, 0, 0, 0, 1, 2020, 1, 2, 1, 0, 2],
        [5, 0, 0, 1, 0, 2020, 1, 2, 1, 1, 1],
    ]
    assert RECIPE.matrix(TABLE).tolist() == expected


def test_notes_say_what_was_done():
    assert RECIPE.notes == [
        "width: missing values filled by the median, and marked",
        "colour: an indicator for each value",
        "sold: date as year, month, weekday, days since 2019-12-31; missing ones filled by the "
        "median, and marked",
        "unit: left out, the same value in every row",
        "height: infinite values replaced by the largest or smallest finite one",
    ]


def test_equal_treatments_share_a_note():
    raw = {name: texts("a", "b") for name in "uvwxyz"}
    assert Columns.learn(raw).notes == ["u, v, w, x and 2 more: an indicator for each value"]


def test_new_values_do_not_fail():
    """An unseen level has no indicator, and what was never missing is filled."""
    new = {
        "width": np.array([NAN]),
        "colour": texts("green"),
        "sold": texts("2021-03-07 12:00"),
        "height": np.array([NAN]),
    }
    assert RECIPE.matrix(new).tolist() == [[3, 1, 0, 0, 0, 2021, 3, 6, 432.5, 0, 1]]


def test_an_unseen_level_counts_as_the_rarest():
    frequent = [f"level {k}" for k in range(MOST_LEVELS) for _ in range(10)]
    rare = ["rare", "rare", "rarer"]
    recipe = Columns.learn({"x": texts(*frequent, *rare)})
    assert len(recipe.names) == MOST_LEVELS + 2
    new, rarest, twice, once = recipe.matrix({"x": texts("new", "rarer", "rare", "level 3")})
    assert new.tolist() == rarest.tolist()
    assert new[:-1].tolist() == twice[:-1].tolist() == [0] * MOST_LEVELS + [1]
    assert [new[-1], twice[-1], once[-1]] == pytest.approx(np.log(np.array([1, 2, 10]) / 203))


def test_the_order_of_rows_does_not_matter():
    order = [2, 0, 3, 1]
    shuffled = {name: column[order] for name, column in TABLE.items()}
    assert Columns.learn(shuffled) == RECIPE
    np.testing.assert_array_equal(RECIPE.matrix(shuffled), RECIPE.matrix(TABLE)[order])


def test_a_weight_is_a_number_of_rows():
    """A row of weight two is the row given twice, and one of weight zero is not there."""
    weights = np.array([2.0, 1.0, 0.0, 3.0])
    repeated = {name: column[[0, 0, 1, 3, 3, 3]] for name, column in TABLE.items()}
    weighted, plain = Columns.learn(TABLE, weights), Columns.learn(repeated)
    assert (weighted.names, weighted.notes) == (plain.names, plain.notes)
    np.testing.assert_array_equal(weighted.matrix(TABLE), plain.matrix(TABLE))


def test_a_constant_column_changes_nothing():
    constant = {"one": np.ones(4), "none": np.full(4, NAN), "text": texts(*"aaaa")}
    more = Columns.learn(TABLE | constant)
    np.testing.assert_array_equal(more.matrix(TABLE | constant), RECIPE.matrix(TABLE))


def test_a_file_keeps_the_recipe():
    encoder = Encoder()
    description = encoder(RECIPE)
    assert Decoder(description, encoder.tensors, {}).result(Columns) == RECIPE


@pytest.mark.parametrize(
    ("name", "values", "left_out"),
    [
        ("id", [7.0, 3.0, 5.0], True),
        ("PassengerId", [7.0, 3.0, 5.0], True),
        ("user_id", [7.0, 3.0, 3.0], False),
        ("id", [7.5, 3.0, 5.0], False),
        ("paid", [7.0, 3.0, 5.0], False),
        ("day", [1.0, 2.0, 3.0], False),
        ("name", ["a", "b", "c"], True),
        ("name", ["a", "b", "b"], False),
        ("day", ["2019-01-01", "2019-01-02", "2019-01-03"], False),
    ],
)
def test_identifiers_are_left_out_where_they_are_suspected(name, values, left_out):
    raw = {name: raw_column(values)}
    assert Columns.learn(raw).used
    suspicious = Columns.learn(raw, suspects=[name])
    assert (not suspicious.used) == left_out
    assert not left_out or suspicious.notes == [f"{name}: left out, all values differ"]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"width": texts("wide")}, "column 'width' must hold numbers, got 'wide' in row 1"),
        (
            {"sold": texts("31.12.2019")},
            r"column 'sold' must hold dates \(year-month-day\), got '31.12.2019' in row 1",
        ),
    ],
)
def test_entries_of_another_kind_are_named(entry, message):
    with pytest.raises(ColumnError, match=message):
        RECIPE.matrix({name: column[:1] for name, column in TABLE.items()} | entry)


@pytest.mark.parametrize(
    ("text", "order"),
    [
        ("2019-01-31", "ymd"),
        ("2019/1/31", "ymd"),
        ("31.01.2019", "dmy"),
        ("31.1.19", "dmy"),
        ("1/31/2019", "mdy"),
        ("31/01/2019", "dmy"),
        ("2019-01-31T06:00:00Z", "ymd"),
        ("2019-01-31 08:00:00.000+02:00", "ymd"),
        ("1/31/2019 6:00 AM", "mdy"),
    ],
)
def test_dates_in_many_forms(text, order):
    assert order_of({text}) == order
    day = (datetime.date(2019, 1, 31) - datetime.date(1970, 1, 1)).days
    assert day_of(text, order) == day + (0.25 if ":" in text else 0)


@pytest.mark.parametrize("text", ["2019", "1.5", "31.02.2019", "13/13/2019", "1-2", "red", ""])
def test_other_texts_are_no_dates(text):
    assert order_of({text}) is None


def frames():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    code, day = [1, 2, None], [datetime.date(2019, 1, 1), None, datetime.date(2019, 1, 2)]
    flags, counts, words = [True, None, False], [1, None, 3], ["a", None, "b"]
    yield pandas.DataFrame(
        {
            "code": pandas.Categorical(code),
            "day": pandas.to_datetime(pandas.Series(day)),
            "flag": pandas.array(flags, dtype="boolean"),
            "count": pandas.array(counts, dtype="Int64"),
            "word": words,
        }
    )
    yield polars.DataFrame(
        {
            "code": polars.Series(["1", "2", None], dtype=polars.Categorical),
            "day": day,
            "flag": flags,
            "count": counts,
            "word": words,
        }
    )


def test_frames_of_pandas_and_polars_are_the_same():
    first, second = ({name: raw_column(f[name]) for name in f.columns} for f in frames())
    recipe = Columns.learn(first)
    assert Columns.learn(second).notes == recipe.notes
    np.testing.assert_array_equal(recipe.matrix(second), recipe.matrix(first))
    assert recipe.matrix(first)[:, recipe.names.index("flag")].tolist() == [1, 0, 0]


def mixed(n=90):
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    x, kind = rng.normal(size=n), rng.choice(["a", "b", "c"], n)
    frame = pandas.DataFrame({"x": np.where(rng.random(n) < 0.1, NAN, x), "kind": kind})
    return frame, x + 2 * (kind == "a"), np.where(kind == "a", "yes", "no")


@pytest.mark.slow
@pytest.mark.parametrize("make", [regressor, classifier])
def test_estimators_take_frames_with_gaps_and_categories(make, tmp_path):
    frame, y, labels = mixed()
    target = y if make is regressor else labels
    model = make().fit(frame, target)
    assert model.score(frame, target) > 0.85
    assert model.n_features_in_ == 2
    unseen = frame.assign(kind="d")
    assert np.isfinite(model.predict(unseen) if make is regressor else [0.0]).all()
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        np.testing.assert_array_equal(model.predict(frame.to_numpy()), model.predict(frame))
    ep.save(model, tmp_path / "model")
    copy = ep.load(tmp_path / "model")
    np.testing.assert_array_equal(copy.predict(unseen), model.predict(unseen))
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame[["kind", "x"]])


@pytest.mark.slow
def test_estimators_take_arrays_with_gaps():
    """Gaps that only a prediction has are filled, too."""
    frame, y, _ = mixed()
    gaps = frame[["x"]].to_numpy()
    full = np.where(np.isnan(gaps), 0.0, gaps)
    model = regressor().fit(gaps, y)
    assert np.isfinite(model.predict(gaps)).all()
    plain = regressor().fit(full, y)
    mean = plain.predict([[full.mean()]])
    np.testing.assert_allclose(plain.predict([[NAN]]), mean, rtol=1e-9)


@pytest.mark.slow
def test_a_constant_target_is_fitted_exactly():
    X = np.random.default_rng(0).normal(size=(90, 2))
    model = regressor().fit(X, np.full(90, 0.1))
    assert set(model.predict(X)) == {0.1}
