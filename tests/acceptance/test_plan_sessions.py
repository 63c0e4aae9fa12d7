"""Sessions that read the plan on a cluster: ended by an administrator, limited by their role."""

import json

import pytest

from support.endpoint import Endpoint
from support.ledger_reader import LedgerReader
from support.spark_submit import run
from support.standalone_cluster import standalone_cluster

MESSAGES = 3_000
_TIME_OUTS = ("idle_in_transaction_session_timeout", "statement_timeout", "lock_timeout")
_RIGHTS = (
    "USAGE ON SCHEMA public",
    "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public",
    "USAGE ON ALL SEQUENCES IN SCHEMA public",
)
# Ends the plan's sessions, and no other of the role's, as soon as they read a row.
_END_PLAN_SESSIONS = """
CREATE FUNCTION end_plan_session() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('application_name') = 'duesweep plan' THEN
        PERFORM pg_terminate_backend(pg_backend_pid());
    END IF;
    RETURN true;
END $$;
ALTER TABLE {delayed} ENABLE ROW LEVEL SECURITY;
CREATE POLICY end_plan_sessions ON {delayed} USING (end_plan_session());
"""


@pytest.mark.long
def test_plan_whose_sessions_are_ended_is_told_and_settings_of_role_and_database_do_no_harm(
    endpoint: Endpoint, ledger: LedgerReader
) -> None:
    endpoint.set_up("Billing")
    endpoint.delay_many(MESSAGES)
    dsn = endpoint.server.role("sweeper", *_RIGHTS)
    database = endpoint.server.admin.info.dbname
    for name in _TIME_OUTS:
        endpoint.execute(f"ALTER ROLE {database}_sweeper SET {name} = '1s'")
        endpoint.execute(f"ALTER DATABASE {database} SET {name} = '1s'")
    file = str(endpoint.config_file(store__dsn=dsn, sweep__spark_from=0))

    with standalone_cluster(workers=2) as master:
        endpoint.execute(_END_PLAN_SESSIONS.format(delayed=endpoint.delayed))
        cut = run("sweep", "--config", file, "--json", MASTER=master)
        endpoint.execute(f"ALTER TABLE {endpoint.delayed} DISABLE ROW LEVEL SECURITY")
        left = len(endpoint.waiting())
        done = run("sweep", "--config", file, "--json", MASTER=master)

    assert cut.returncode == 4, cut.stderr
    summary = json.loads(cut.stdout)
    assert (summary["outcome"], summary["found"], summary["left"]) == ("incomplete", MESSAGES, left)
    assert summary["skipped"] == 0
    assert "Spark ended the job" in summary["reason"]
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["outcome"], summary["dispatched"]) == ("done", left)
    assert len(endpoint.queue_rows("Billing")) == ledger.count("tombstones") == MESSAGES
