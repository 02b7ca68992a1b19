"""The checks of arguments: what they accept, what they convert, what they refuse."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from entroplay.base.arguments import (
    LONGEST,
    check_schedule,
    flag,
    is_number,
    number_or_schedule,
    one_of,
    per_row,
    positive,
    real_array,
    seed_number,
    value_at,
    whole,
)


@pytest.mark.parametrize("seed", [0, 7, np.int64(7), np.uint32(2**32 - 1), 2**32 - 1])
def test_a_seed_is_a_whole_number_of_32_bits(seed):
    number = seed_number("solve", seed)
    assert type(number) is int
    assert number == seed
    # JAX keeps all its bits: the key of the number is the key of the seed.
    assert jax.random.key_data(jax.random.key(number))[-1] == np.uint32(number)


@pytest.mark.parametrize("seed", [-1, 2**32, 1.0, np.float32(1), True, None, "1", np.array([1])])
def test_other_seeds_are_refused(seed):
    with pytest.raises(ValueError, match="'seed' parameter of solve must be a whole number"):
        seed_number("solve", seed)


@pytest.mark.parametrize("channels", [(), (3,), (3, 3)])
def test_one_number_per_row_multiplies_all_channels_of_the_row(channels):
    factors, rows = jnp.arange(1.0, 6.0), jnp.ones((5, *channels))
    product = per_row(factors, rows) * rows
    assert product.shape == rows.shape
    for i in range(5):
        np.testing.assert_array_equal(product[i], np.full(channels, i + 1.0))


def test_numbers_are_real_scalars_of_any_library():
    for value in (1, 1.5, np.float32(1), np.int8(1), np.array(2.0), jnp.asarray(2)):
        assert is_number(value)
        assert positive("owner", "name", value) == float(value)
    for value in (True, np.bool_(True), "1", None, 1j, np.ones(1)):
        assert not is_number(value)
        with pytest.raises(ValueError, match="finite positive number"):
            positive("owner", "name", value)


def test_whole_numbers_flags_and_choices():
    assert whole("owner", "name", np.int16(3)) == 3
    assert whole("owner", "name", 0, least=0) == 0
    assert flag("owner", "name", np.bool_(False)) is False
    assert one_of("owner", "name", "b", ("a", "b")) == "b"
    refused = (
        lambda: whole("owner", "name", 0),
        lambda: whole("owner", "name", True),
        lambda: whole("owner", "name", 2.0),
        lambda: flag("owner", "name", 1),
        lambda: one_of("owner", "name", "c", ("a", "b")),
        lambda: one_of("owner", "name", 1, ("a", "b")),
    )
    for call in refused:
        with pytest.raises(ValueError, match="'name' parameter of owner must be"):
            call()


def test_schedules_are_checked_over_the_whole_run_and_numbers_at_once():
    falling = optax.linear_schedule(0.5, -0.5, 10)
    assert number_or_schedule("EFP", "rate", falling, at_most=1) is falling
    assert number_or_schedule("EFP", "rate", 1, at_most=1) == 1.0
    for bad in (0, 1.5, np.nan, np.inf, "fast", True):
        with pytest.raises(ValueError, match=r"a number in \(0, 1\] or a schedule"):
            number_or_schedule("EFP", "rate", bad, at_most=1)
    check_schedule("EFP", "rate", 17.0, 100)
    check_schedule("EFP", "rate", falling, 5)
    with pytest.raises(ValueError, match=r"values in \(0, 0.4\].* Got '0.5 at iteration 0'"):
        check_schedule("EFP", "rate", falling, 5, at_most=0.4)
    with pytest.raises(ValueError, match="Got '0 at iteration 5' instead"):
        check_schedule("EFP", "rate", falling, 6)
    with pytest.raises(ValueError, match="one number per iteration"):
        check_schedule("EFP", "rate", lambda t: jnp.ones(2), 3)
    assert value_at(0.25, 3) == 0.25
    assert float(value_at(falling, 5)) == float(falling(5))


@pytest.mark.parametrize("double", [False, True])
def test_arrays_take_the_default_precision(double):
    with jax.enable_x64(double):
        array = real_array("owner", "name", [[1, 2]], ndim=(1, 2))
        assert array.dtype == (jnp.float64 if double else jnp.float32)
        assert array.shape == (1, 2)


def test_a_long_value_is_cut_in_the_message():
    with pytest.raises(ValueError, match="real numbers") as caught:
        real_array("owner", "name", ["a" * 500])
    assert "a" * (LONGEST - 10) in str(caught.value)
    assert "a" * LONGEST not in str(caught.value)
