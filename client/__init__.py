"""The clients, and the command line on them.

They log with the standard library, under `ottla.client`: one line for each connection lost, leader changed, rebalance
and retry, and none for a request or a record. Nothing is printed unless the program sets up logging.
"""

import logging

logging.getLogger(__name__).addHandler(logging.NullHandler())
