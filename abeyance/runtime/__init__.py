"""Running the code of one visit, in an activity and in memory alike. Start reading at `node_runner`.

Activities and `abeyance.testing` import it; it imports what authors write.
"""
