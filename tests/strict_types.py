"""The checker behind the annotations in tests; whole numbers pass where floats are asked for."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
