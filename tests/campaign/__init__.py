"""The campaign: attacks, faults and mutated inputs, at a size that does not fit into every run of the tests.

    python -m tests.campaign --short
    python -m tests.campaign inputs --inputs 10000000 --processes 2
    python -m tests.campaign attacks kills connections disks

docs/reliability.md has the results. `test_campaign` is the short form, which runs with the other tests.
"""
