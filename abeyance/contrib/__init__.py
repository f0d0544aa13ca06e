"""What the product can do without: each room could be a package of its own.

Nothing outside imports them. The API finds its protocols by entry points, and the command line imports
`slack` when it is asked for.
"""
