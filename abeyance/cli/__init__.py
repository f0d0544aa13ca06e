"""The command line, over the HTTP client. Only `python -m abeyance` and the worker import it.

Start reading at `main`, which has the commands of the service; `runs` has those of one run.
"""
