"""The output of a sweep for people: progress, summary, preview. The command line and the
demonstration print it.
"""
