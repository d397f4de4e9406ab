"""The common parts of commands: configs on the command line, and printed tables."""
