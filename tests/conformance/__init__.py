"""Which tests prove which rules of the specifications.

`requirements.csv` lists every rule under an id, and `@pytest.mark.spec("SEQ-02")` on a test says that the
test proves it. `docs/conformance.md` is made from both: `make conformance`.
"""
