"""The command line. `main` has the commands of the service; start reading there."""
