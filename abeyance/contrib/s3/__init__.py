"""Blobs in S3 or a compatible object storage: `ABEYANCE_STORAGE=s3://bucket/prefix`."""
