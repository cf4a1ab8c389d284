"""The store on S3, GCS and Azure, through obstore."""

from .loop_thread import Helper, line_of
from .store import CloudStore
