"""A process that follows a stream that another one writes, and checks every byte: `follower.py DATA COUNT`.

The writer appends three messages at a time; the last bytes of each are its sequence modulo 251.
"""

import sys

from zambezi.zeps.journal import Store


def follow(path: str, count: int) -> int:
    spans = 0
    with Store(path, write=False) as store:
        journal = store.open("a")
        reader = journal.reader(0)
        print("ready", flush=True)
        while reader.position < count:
            journal.refresh()
            assert journal.last % 3 == 0, "a part of a batch was seen"
            while (span := reader.peek(10_000)) is not None:
                made = span.read()
                assert span.first == reader.position + 1, f"{span} follows {reader.position}"
                assert len(made.starts) - 1 == span.count, f"{span} has {len(made.starts) - 1} messages"
                for sequence, body in enumerate(made.bodies, span.first):
                    assert body[3:11] == sequence.to_bytes(8, "big"), f"{sequence}: {body!r}"
                    assert set(body[-20:]) == {sequence % 251}, f"{sequence}: {body!r}"
                reader.skip(span)
                spans += 1
    return spans


if __name__ == "__main__":
    print(follow(sys.argv[1], int(sys.argv[2])))
