"""Rules whose condition is CLIPS text. `source` checks the text, `engine` evaluates rules with CLIPS.

The authoring room and the runtime import it; it imports the core only, and CLIPS when it is used.
"""
