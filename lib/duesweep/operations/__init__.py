"""The operations on an endpoint: one function a command, one frozen value back.

`duesweep.Duesweep` is the door for the command line, notebooks and tests (docs/python.md).
"""
