"""The jobs: each has `run(spark, settings, ...)`, and reads neither the command line nor the environment."""
