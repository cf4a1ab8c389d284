"""Writing DataFrames: the plan on the driver, the files in the tasks."""

from .jobs import explaining
from .service_jobs import ServiceJobs
from .sink import each_once
from .sizes import SIZES, JobSizes
from .streams import SparkStream
from .write import Writes
from .write_methods import Writing
