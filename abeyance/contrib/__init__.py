"""Optional parts of the product: each folder could be a package of its own.

Nothing outside imports them. Entry points name the protocols of the API, the delivery of notifications,
the router of rules in CLIPS and the storage in S3. The command line imports `slack` when asked to.
"""
