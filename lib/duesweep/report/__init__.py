"""What a sweep tells people: progress, summary, preview. The command line and the demonstration
print it.
"""
