"""The routes of `/api/v1`, by subject; `table.py` lists them."""
