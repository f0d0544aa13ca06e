"""Payload conversion, encryption, and blobs outside Temporal."""
