"""The local stack: Temporal, a worker and the API as one group of processes. Start reading at `stack`."""
