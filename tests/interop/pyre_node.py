"""A Pyre node as a program, with the commands and events of `tests.zre.member`. Its argument is its options as JSON."""

import json
import sys
import threading
from uuid import UUID

import zmq
from pyre import Pyre, PyreEvent  # type: ignore[import-untyped]

from tests.zre.member import tell


def listen(node: Pyre) -> None:
    while True:
        event = PyreEvent(node)
        if event.type == "STOP":
            return
        fields: dict[str, object] = {"peer": event.peer_uuid.hex, "name": event.peer_name}
        if event.type == "ENTER":
            fields |= {"endpoint": event.peer_addr, "headers": event.headers}
        if event.group is not None:
            fields["group"] = event.group
        if event.msg is not None:
            fields["content"] = [frame.decode("latin-1") for frame in event.msg]
        tell(event.type.capitalize(), **fields)


def obey(node: Pyre, command: str, *arguments: str) -> None:
    content = [argument.encode("latin-1") for argument in arguments[1:]]
    match command:
        case "join":
            node.join(arguments[0])
        case "leave":
            node.leave(arguments[0])
        case "whisper":
            node.whisper(UUID(arguments[0]), content)
        case "shout":
            node.shout(arguments[0], content)
        case "known":
            tell(command, answer=[peer.hex for peer in node.peers()])
        case _:
            raise ValueError(command)


def main() -> None:
    options = json.loads(sys.argv[1])
    with zmq.Context() as context:
        node = Pyre(options["name"], ctx=context)
        for key, value in options.get("headers", {}).items():
            node.set_header(key, value)
        for group in options.get("groups", ()):
            node.join(group)
        node.start()
        tell("Started", peer=node.uuid().hex, name=node.name(), endpoint=node.endpoint())
        ears = threading.Thread(target=listen, args=[node])
        ears.start()
        for line in sys.stdin:
            obey(node, *json.loads(line))
        node.stop()
        ears.join()
        context.destroy(linger=0)


if __name__ == "__main__":
    main()
