"""What Temporal's histories tell of runs, read without a worker, and the feed that is made of them."""
