"""Each module has a test file: of its own name, or the one that the table below names."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "zambezi"
TESTS = ROOT / "tests"

# Modules whose tests are in a file of another name: a command is tested by the file that runs it, a value or an
# error by the tests of the code that makes it.
ELSEWHERE = {
    "cli/errors.py": "cli/test_help.py",
    "cli/capture.py": "cli/test_reply.py",
    "cli/exec.py": "cli/test_worker.py",
    "cli/formats.py": "cli/test_streams.py",
    "cli/limits.py": "spark/test_limits.py",
    "cli/logs.py": "cli/test_serve.py",
    "cli/middleware.py": "cli/test_fleet.py",
    "cli/notices.py": "cli/test_streams.py",
    "cli/node.py": "cli/test_mesh.py",
    "cli/pipeline.py": "spark/pipelines/test_command.py",
    "cli/pipeline_arguments.py": "spark/pipelines/test_command.py",
    "cli/pipeline_settings.py": "spark/pipelines/test_command.py",
    "cli/pub.py": "cli/test_streams.py",
    "cli/reader.py": "cli/test_streams.py",
    "cli/results.py": "spark/pipelines/test_command.py",
    "cli/security.py": "cli/test_peer.py",
    "cli/spark.py": "spark/pipelines/test_command.py",
    "cli/sql.py": "spark/test_sql.py",
    "cli/stream.py": "cli/test_streams.py",
    "cli/stream_tables.py": "cli/test_streams.py",
    "cli/sub.py": "cli/test_streams.py",
    "cli/topics.py": "cli/test_fleet.py",
    "console/answers.py": "console/test_door.py",
    "console/guard.py": "console/test_console.py",
    "console/metrics.py": "console/test_console.py",
    "errors.py": "zeps/test_errors.py",
    "mcollective/outputs.py": "mcollective/test_outbox.py",
    "p2p/errors.py": "p2p/test_faces.py",
    "p2p/events.py": "p2p/test_faces.py",
    "server/archive.py": "server/test_server.py",
    "server/config/consistency.py": "server/config/test_settings.py",
    "server/config/quantity.py": "server/config/test_settings.py",
    "server/errors.py": "server/test_server.py",
    "server/logs.py": "server/test_server.py",
    "server/queues.py": "server/test_server.py",
    "server/state.py": "console/test_console.py",
    "spark/avro/blocks.py": "spark/test_avro.py",
    "spark/avro/cursors.py": "spark/test_avro.py",
    "spark/avro/kinds.py": "spark/test_avro.py",
    "spark/avro/logical.py": "spark/test_avro.py",
    "spark/avro/schema.py": "spark/test_avro.py",
    "spark/entries.py": "spark/test_journal_backend.py",
    "spark/lake/frames.py": "spark/pipelines/test_running.py",
    "spark/lake/reading.py": "spark/test_archive_reader.py",
    "spark/lake/source.py": "spark/pipelines/test_running.py",
    "spark/pipelines/archive.py": "spark/pipelines/test_running.py",
    "spark/pipelines/batches.py": "spark/pipelines/test_running.py",
    "spark/pipelines/pipeline.py": "spark/pipelines/test_running.py",
    "spark/pipelines/restore.py": "spark/pipelines/test_kills.py",
    "spark/sessions.py": "spark/test_queries.py",
    "spark/task_publisher.py": "spark/test_sink.py",
    "zeps/journal/backing.py": "zeps/store/test_backing.py",
    "spark/views.py": "spark/test_sql.py",
    "zeps/administration/asyncio.py": "zeps/test_asyncio.py",
    "zeps/administration/sync.py": "zeps/test_asyncio.py",
    "zeps/broker/claims.py": "zeps/broker/test_readers.py",
    "zeps/broker/client_connection.py": "zeps/broker/test_session.py",
    "zeps/broker/delivery.py": "zeps/broker/test_session.py",
    "zeps/broker/desk.py": "zeps/broker/test_exchange.py",
    "zeps/broker/desks.py": "zeps/broker/test_last_messages.py",
    "zeps/broker/extensions.py": "zeps/broker/test_session.py",
    "zeps/broker/group_log.py": "zeps/broker/test_group.py",
    "zeps/broker/group_member.py": "zeps/broker/test_group.py",
    "zeps/broker/group_reading.py": "zeps/broker/test_group.py",
    "zeps/broker/group_source.py": "zeps/broker/test_sharing.py",
    "zeps/broker/groups.py": "zeps/broker/test_sharing.py",
    "zeps/broker/letterbox.py": "zeps/broker/test_sharing.py",
    "zeps/broker/portions.py": "zeps/broker/test_sharing.py",
    "zeps/broker/prefixed_block.py": "zeps/broker/test_timed_cursor.py",
    "zeps/broker/resumption.py": "zeps/broker/test_publishers.py",
    "zeps/broker/returned.py": "zeps/broker/test_group.py",
    "zeps/broker/shell.py": "zeps/broker/test_engine.py",
    "zeps/broker/stored_stream.py": "zeps/broker/test_depot.py",
    "zeps/broker/session_state.py": "zeps/broker/test_session.py",
    "zeps/broker/reserved.py": "zeps/broker/test_shared_streams.py",
    "zeps/broker/seeking.py": "zeps/broker/test_shared_streams.py",
    "zeps/client/reading.py": "zeps/test_named.py",
    "zeps/client/sharing.py": "zeps/test_shared.py",
    "zeps/journal/copying.py": "zeps/broker/test_administration.py",
    "zeps/journal/reading.py": "zeps/journal/test_journal.py",
    "zeps/journal/recounting.py": "zeps/journal/test_counts.py",
    "zeps/journal/stored_policy.py": "zeps/broker/test_administration.py",
    "zeps/mirror/sync.py": "zeps/mirror/test_asyncio.py",
    "zeps/requests/sync.py": "zeps/requests/test_asyncio.py",
    "zeps/store/checking.py": "cli/test_store.py",
    "zeps/store/commands.py": "zeps/store/test_runner.py",
    "zeps/store/ending.py": "zeps/store/test_takeover.py",
    "zmtp/async_waiter.py": "zmtp/test_waiters.py",
    "zmtp/errors.py": "zmtp/test_faces.py",
    "zmtp/thread_waiter.py": "zmtp/test_waiters.py",
    "zre/meetings.py": "zre/test_engine.py",
    "zre/options.py": "zre/test_node.py",
    "zre/outputs.py": "zre/test_outbox.py",
    "zre/peer_info.py": "zre/test_node.py",
    "zre/reception.py": "zre/test_engine.py",
    "zre/whereabouts.py": "zre/test_node.py",
}


def modules() -> list[Path]:
    found = (path.relative_to(SOURCE) for path in SOURCE.rglob("*.py"))
    return sorted(path for path in found if path.stem not in {"__init__", "__main__"})


def own_tests(module: Path) -> Path:
    return TESTS / module.parent / f"test_{module.name}"


def test_each_module_has_a_test_file() -> None:
    missing = [str(module) for module in modules() if not own_tests(module).exists() and str(module) not in ELSEWHERE]
    assert not missing, "write a test file for each, or name the one that covers it in ELSEWHERE"


def test_the_table_is_up_to_date() -> None:
    known = set(map(str, modules()))
    gone = [name for name, tests in ELSEWHERE.items() if name not in known or not (TESTS / tests).exists()]
    needless = [name for name in ELSEWHERE if own_tests(Path(name)).exists()]
    assert not gone
    assert not needless
