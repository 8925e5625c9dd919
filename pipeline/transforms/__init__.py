"""Pure functions from DataFrames to DataFrames, and what jobs decide without Spark: no I/O."""
