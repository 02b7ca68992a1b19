"""The type checker of the tests. Whole numbers pass where floats are expected."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
