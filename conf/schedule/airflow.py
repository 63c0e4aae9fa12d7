"""Sweeps, for Apache Airflow 3: save it as duesweep_dag.py in the DAGs' folder.

To fill in: the paths on the worker, which has duesweep and, in its environment, DUESWEEP_STORE__DSN
and other secrets; and the period.
"""

from datetime import timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

COMMAND = "/opt/duesweep/bin/duesweep sweep --config /etc/duesweep/duesweep.toml"
PERIOD = timedelta(minutes=1)
# A sweep ends before the next one begins.
MAX_SECONDS = int(PERIOD.total_seconds()) - 10

with DAG(
    dag_id="duesweep",
    schedule=PERIOD,
    catchup=False,
    # Two sweeps at once would do no harm, but a late one cannot help a running one.
    max_active_runs=1,
    tags=["duesweep"],
):
    BashOperator(
        task_id="sweep",
        bash_command=f"{COMMAND} --max-seconds {MAX_SECONDS} --json",
        append_env=True,
        # After exit code 4 the next sweep continues. 2, 3 and 5 need a person, so the task fails.
        # 99 is Airflow's own.
        skip_on_exit_code=[4, 99],
        retries=0,
        execution_timeout=timedelta(seconds=MAX_SECONDS + 180),
    )
