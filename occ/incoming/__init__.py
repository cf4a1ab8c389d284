"""Incoming rows: convert them from any supported form to the table's columns and types, or refuse them."""

from .incoming import ADD, NULL, REFUSE, Incoming, refuse_new_columns
from .lossless import fitted, stored_type
from .not_null import refuse_nulls
from .ordering_values import null_free, refuse_some_of_the_order, refuse_unordered
from .python_values import array_of
from .spool import TemporaryBytes
