"""zambezi.zre.description: a node in text."""

from tests.zre.mesh import Mesh
from zambezi.zre.description import describe


def test_a_description_names_the_node_its_groups_and_its_peers() -> None:
    mesh = Mesh()
    ann, bob = mesh.add(1, groups=["CHAT"], headers={"X-ROLE": "first"}), mesh.add(2, groups=["CHAT", "\x1b"])
    ann.engine.join("CHAT", contest=True)
    mesh.pump(ann)
    mesh.advance(2)
    text = describe(bob.engine, bob.endpoint)
    for line in (
        f"node node2 {bob.uuid}",
        f"  mailbox   {bob.endpoint}",
        "  times     interval 1 s, evasive 5 s, expired 30 s",
        "  headers   none",
        f"  groups    \\x1b, CHAT (leader {ann.uuid})",
        "  peers     1, and 0 that have not greeted this node",
        f"  peer node1 {ann.uuid}",
        f"    mailbox {ann.endpoint}",
        "    groups  CHAT",
        "    headers X-ROLE: first",
    ):
        assert line in text.splitlines()
    assert "closed" in describe(bob.engine, "")
