"""Run directories and the processes that train in them."""
