# shellcheck shell=bash
# Sourced after environment.sh: Java, the jars, and how a job is submitted.

: "${root:?}" "${venv:?}" "${python:?}"
jars=$root/.cache/jars

require_java() {
  local java=${JAVA_HOME:+$JAVA_HOME/bin/}java install
  install="install it (Debian, Ubuntu: apt-get install openjdk-17-jre-headless or \
openjdk-21-jre-headless; Fedora, RHEL: \
java-17-openjdk-headless; macOS: brew install openjdk@17), or point JAVA_HOME at one"
  java_version=$("$java" -version 2>&1) ||
    die "Spark needs Java 17 or 21, and $java does not run: $install."
  [[ $java_version =~ version\ \"([0-9]+) ]] || die "$java does not say its version: $java_version"
  case ${BASH_REMATCH[1]} in
    17 | 21) ;;
    *) die "Spark needs Java 17 or 21, and $java is Java ${BASH_REMATCH[1]}: $install." ;;
  esac
}

jars_are_current() {
  cmp -s "$root/jars.lock" "$jars/jars.lock"
}

fetch_jars() {
  local log=$root/.cache/jars.log
  echo "Fetching the jars of jars.lock: once." >&2
  "$python" "$root/scripts/fetch_jars.py" 2> "$log" && return
  cat "$log" >&2
  die "The jars of jars.lock could not be fetched: see above. Where Maven Central is out of reach, \
name a mirror with DEFAULT_ARTIFACT_REPOSITORY=<url>, then run this again." 1
}

# A third of a cold run goes into loading classes that never change; this file holds them as the JVM
# wants them in memory (class data sharing). An empty one says that this JVM cannot make it.
class_archive_is_current() {
  [[ -e $class_archive ]]
}

make_class_archive() {
  local unfinished=$class_archive.unfinished
  echo "Archiving Spark's classes, for quick starts: once, half a minute." >&2
  rm -f "$unfinished"
  prepare_submit 'local[2]' "-XX:ArchiveClassesAtExit=\"$unfinished\""
  "$python" "$root/scripts/train_jvm.py" > "$root/.cache/class-archive.log" 2>&1 ||
    rm -f "$unfinished"
  [[ -s $unfinished ]] || : > "$unfinished"
  mv "$unfinished" "$class_archive"
}

prepare_spark() {
  local checksum
  require_java
  SPARK_HOME=$(echo "$venv"/lib/python3.*/site-packages/pyspark)
  export SPARK_HOME
  once jars_are_current fetch_jars
  # A class path of other files, or of files elsewhere, is another archive; options of the JVM that
  # it tells of in the same breath are not.
  checksum=$({ grep -v '^Picked up ' <<< "$java_version"; echo "$root"; cat "$root/jars.lock"; } | cksum)
  class_archive=$venv/classes-${checksum%% *}.jsa
  # Without it a start is slower: no reason to refuse a user who only reads this checkout.
  if class_archive_is_current || [[ -w $venv ]]; then once class_archive_is_current make_class_archive; fi
}

# prepare_submit <master> <options of the JVM> [option of spark-submit ...]: whatever Python starts
# next is Spark's driver. PySpark starts spark-submit from inside it. The other way round,
# spark-submit gives Python a pipe for a terminal and prints its stderr on stdout.
prepare_submit() {
  local master=$1 java_options=$2 log4j environment option
  shift 2
  log4j="-Dlog4j2.configurationFile=\"$root/conf/log4j2.properties\""
  set -- --master "$master" --conf "spark.driver.defaultJavaOptions=$log4j $java_options" \
    --properties-file "${properties_file:-$root/conf/spark-defaults.conf}" \
    --driver-class-path "$(joined : "$jars"/*.jar)${driver_class_path:+:$driver_class_path}" "$@"
  export PYSPARK_PYTHON=$python
  case $master in
    local*)
      # Nobody else is to reach this driver, and Spark need not look for an address.
      export SPARK_LOCAL_IP=${SPARK_LOCAL_IP:-127.0.0.1}
      ;;
    *)
      environment=$("$python" "$root/scripts/build_environment.py") || exit
      archives=$environment#environment${archives:+,$archives}
      PYSPARK_PYTHON=./environment/bin/python3
      ;;
  esac
  case $master in
    local | local\[*) ;; # the driver is the only executor
    *) more_jars=$(joined , "$jars"/*.jar)${more_jars:+,$more_jars} ;;
  esac
  PYSPARK_PYTHON=${python_of_tasks:-$PYSPARK_PYTHON}
  # Where tasks run on this machine's .venv, the package is there: on a zip in `sys.path` each task
  # would spend 0.3 s, since Spark lets Python forget at the start of a task what it has seen there.
  if [[ $PYSPARK_PYTHON != "$python" ]]; then
    "$python" "$root/scripts/build_package.py" || exit
    py_files=$root/build/duesweep.zip${py_files:+,$py_files}
  fi
  PYSPARK_SUBMIT_ARGS=
  # shellcheck disable=SC2089 # the quotes are for PySpark, which splits this as a shell would
  for option in "$@" ${archives:+--archives "$archives"} ${more_jars:+--jars "$more_jars"} \
    ${py_files:+--py-files "$py_files"} pyspark-shell; do
    PYSPARK_SUBMIT_ARGS+="'${option//\'/\'\\\'\'}' "
  done
  # shellcheck disable=SC2090
  export PYSPARK_SUBMIT_ARGS
}

joined() {
  local IFS=$1
  echo "${*:2}"
}
