"""What is wrong with a configuration's services, and what to do: `duesweep doctor`.

Facts are values that adapters gather; each rule is a function from facts to findings.
"""
