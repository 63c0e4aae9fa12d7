#!/usr/bin/env bash
# Makes what a command needs, once, and runs it; the work itself is in lib/duesweep.
set -euo pipefail

usage() {
  cat << 'END'
usage: ./spark-submit.sh <command> [options]

  sweep    sweep what is due now, once         setup    create what a sweep needs in the database
  watch    sweep as messages come due
  doctor   look for what is amiss              config   print the settings that count
  queue    send, receive, peek, purge ...      subscriptions  list, add and remove them
  handover drain a store for good, into RabbitMQ's delayed delivery
  rabbitmq create, verify, migrate the delay ladder; create endpoints
  plan     say what a sweep would do now       list     list what waits
  report   write a page about all of it        audit, maintain  check and tidy up the ledger
  schedule cron, systemd, kubernetes, airflow: print what runs it regularly
  show     show a message, and its history     errors   list, show, replay, discard what failed
  cancel, reschedule, restore                  change messages that wait
  pause, resume, paused                        let nothing go to a destination
  demo     see it work, on a PostgreSQL of its own
  help     this text; `<command> --help` for a command's own options
  --version  the versions of duesweep, Python and PySpark

Options of Spark's spark-submit may stand anywhere: --master (default $MASTER, else local[*,4]),
--conf key=value, --driver-memory, --executor-memory, --total-executor-cores, --jars, --packages,
--properties-file (instead of conf/spark-defaults.conf), and the like. All others are the command's.
END
}

take_spark_option() {
  of_spark+=("$1" "$2")
  case $1=$2 in
    --conf=spark.master=*) master=${2#*=} ;;
    --conf=spark.pyspark.python=*) python_of_tasks=${2#*=} ;;
    --conf=spark.hadoop.fs.*) spark_options+=("$1" "$2") && export DUESWEEP_SPARK_FILES=1 ;;
    --master=*) master=$2 ;;
    --properties-file=*) properties_file=$2 && export DUESWEEP_SPARK_FILES=1 ;;
    # Of these, spark-submit takes the last one only: ours and the user's become one.
    --archives=*) archives=${archives:+$archives,}$2 ;;
    --jars=*) more_jars=${more_jars:+$more_jars,}$2 ;;
    --py-files=*) py_files=${py_files:+$py_files,}$2 ;;
    --driver-class-path=*) driver_class_path=${driver_class_path:+$driver_class_path:}$2 ;;
    *) spark_options+=("$1" "$2") ;;
  esac
}

parse() {
  while (($#)); do
    case ${1%%=*} in
      --conf | --driver-class-path | --driver-cores | --driver-java-options | --driver-library-path | \
        --driver-memory | --exclude-packages | --executor-cores | --executor-memory | --files | \
        --archives | --jars | --keytab | --master | --name | --num-executors | --packages | \
        --principal | --properties-file | --proxy-user | --py-files | --repositories | \
        --total-executor-cores)
        if [[ $1 == *=* ]]; then
          take_spark_option "${1%%=*}" "${1#*=}"
        else
          (($# > 1)) || die "spark-submit.sh: $1 needs a value."
          take_spark_option "$1" "$2"
          shift
        fi
        ;;
      --load-spark-defaults) spark_options+=("$1") of_spark+=("$1") ;;
      --)
        arguments+=("${@:2}")
        return
        ;;
      *) arguments+=("$1") ;;
    esac
    shift
  done
}

run_on_spark() {
  prepare_spark
  local shared=
  if [[ -s $class_archive ]]; then shared="-XX:SharedArchiveFile=\"$class_archive\""; fi
  prepare_submit "$master" "$shared" ${spark_options[@]+"${spark_options[@]}"}
  exec "$python" "$@"
}

# The second time, for Spark: see `sweep` below.
if [[ -z ${DUESWEEP_FOR_SPARK:-} ]]; then
  # What a sweep that looks ahead counts its start from.
  started=${EPOCHREALTIME:-$(date +%s)}
  export DUESWEEP_STARTED=${started/,/.}
fi

root=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
# shellcheck source=scripts/environment.sh
source "$root/scripts/environment.sh"
# shellcheck source=scripts/spark.sh
source "$root/scripts/spark.sh"

# With retries, as on a cluster: plain local[*] gives a task no second try.
master=${MASTER:-local[*,4]}
properties_file='' python_of_tasks='' archives='' more_jars='' py_files='' driver_class_path=''
spark_options=() arguments=() of_spark=() given=("$@")
parse "$@"
set -- ${arguments[@]+"${arguments[@]}"}
command=${1:-help}
(($# == 0)) || shift

case $command in
  help | -h | --help)
    usage
    exit
    ;;
esac
# One document on stdout, whatever happens: those that Python prints itself come later.
tell_failure() {
  local status=$?
  ((status == 0)) || printf '{"outcome": "error", "exit_code": %d, "error": "%s"}\n' "$status" \
    "What the command needs could not be made ready; stderr says why"
}
if [[ $command =~ ^(sweep|handover)$ && " $* " == *" --json "* ]]; then trap tell_failure EXIT; fi
once environment_is_current make_environment
case $command in
  sweep)
    # Without Java Python asks the store, and sweeps if little is due. If much is due, it becomes
    # this script again. So there is one process, and who stops it stops the sweep.
    if [[ -z ${DUESWEEP_FOR_SPARK:-} ]]; then
      DUESWEEP_SPARK_COMMAND="DUESWEEP_FOR_SPARK=1 exec bash $(printf '%q ' "$root/spark-submit.sh" "${given[@]}")"
      export DUESWEEP_SPARK_COMMAND
      exec "$python" -P -m duesweep sweep --gate "$@"
    fi
    unset DUESWEEP_FOR_SPARK DUESWEEP_SPARK_COMMAND
    run_on_spark "$root/jobs/run_sweep.py" "$@"
    ;;
  watch)
    # When much is due, it starts `sweep` by this script, with the same options of Spark.
    DUESWEEP_SPARK_COMMAND="exec bash $(printf '%q ' "$root/spark-submit.sh" ${of_spark[@]+"${of_spark[@]}"})"
    export DUESWEEP_SPARK_COMMAND
    exec "$python" -P -m duesweep watch "$@"
    ;;
  handover)
    [[ " $* " == *" --abort "* || " $* " == *" --dry-run "* || " $* " == *" --help "* ]] ||
      run_on_spark "$root/jobs/run_handover.py" "$@"
    exec "$python" -P -m duesweep handover "$@"
    ;;
  doctor)
    [[ " $* " == *" --no-spark "* || " $* " == *" --help "* ]] ||
      run_on_spark "$root/jobs/run_doctor.py" "$@"
    exec "$python" -P -m duesweep doctor "$@"
    ;;
  schedule)
    export DUESWEEP_COMMAND=$root/spark-submit.sh
    exec "$python" -P -m duesweep schedule "$@"
    ;;
  demo) run_on_spark "$root/jobs/run_demo.py" "$@" ;;
  *) exec "$python" -P -m duesweep "$command" "$@" ;;
esac
