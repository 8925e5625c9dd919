"""`python -m ottla.pipeline JOB ...`; spark-submit runs this file, too."""

from __future__ import annotations

from ottla.pipeline.cli import main

if __name__ == "__main__":
    main()
