"""Columns of tables as they are, turned into numbers: `Columns` learns how, and remembers it."""

from .base import ColumnError as ColumnError
from .table import Columns as Columns
from .table import listed as listed
