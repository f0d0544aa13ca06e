"""The HTTP API: imported only as `abeyance.api`. Start reading at `app.py`."""
