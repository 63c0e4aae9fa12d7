"""Options of Spark's spark-submit, which may stand anywhere on a command line of duesweep."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from duesweep.core.errors import ConfigError

# Options of spark-submit with a value. All others are the command's.
_OPTIONS = {
    *("--archives", "--conf", "--driver-class-path", "--driver-cores", "--driver-java-options"),
    *("--driver-library-path", "--driver-memory", "--exclude-packages", "--executor-cores"),
    *("--executor-memory", "--files", "--jars", "--keytab", "--master", "--name"),
    *("--num-executors", "--packages", "--principal", "--properties-file", "--proxy-user"),
    *("--py-files", "--remote", "--repositories", "--total-executor-cores"),
}
_FLAG = "--load-spark-defaults"
_FILE_SYSTEM = "spark.hadoop.fs."


@dataclass(frozen=True, slots=True)
class SubmitOptions:
    """Options of Spark's spark-submit with their values, in the order in which they were given."""

    given: tuple[tuple[str, str], ...] = ()
    loads_defaults: bool = False

    @property
    def words(self) -> list[str]:
        """As they may stand on a command line."""
        return [word for option in self.given for word in option] + [_FLAG] * self.loads_defaults

    @property
    def may_reach_other_files(self) -> bool:
        """Whether Spark may reach other file systems with them than this process does."""
        return self.remote is not None or any(
            name == "--properties-file" or (name == "--conf" and value.startswith(_FILE_SYSTEM))
            for name, value in self.given
        )

    def all_of(self, name: str) -> list[str]:
        return [value for given, value in self.given if given == name]

    @property
    def master(self) -> str | None:
        """The master, None if none was given."""
        named = self.all_of("--master")
        return named[-1] if named else self.settings.get("spark.master")

    @property
    def settings(self) -> Mapping[str, str]:
        """Spark's settings."""
        pairs = [value.partition("=") for value in self.all_of("--conf")]
        return {name: value for name, _, value in pairs}

    @property
    def remote(self) -> str | None:
        """The address of a server of Spark Connect, None if none was given."""
        named = self.all_of("--remote")
        return named[-1] if named else None

    def without(self, *names: str) -> "SubmitOptions":
        left = tuple(option for option in self.given if option[0] not in names)
        return SubmitOptions(left, self.loads_defaults)


def take_options(arguments: Sequence[str]) -> tuple[SubmitOptions, list[str]]:
    """The options of spark-submit, which may stand anywhere before `--`, and what else is on the
    command line. Raises `ConfigError` if one has no value.
    """
    taken: list[tuple[str, str]] = []
    rest: list[str] = []
    loads_defaults = False
    words = iter(arguments)
    for word in words:
        name, equals, value = word.partition("=")
        if word == "--":
            rest += [word, *words]
        elif word == _FLAG:
            loads_defaults = True
        elif name not in _OPTIONS:
            rest.append(word)
        elif equals:
            taken.append((name, value))
        elif (following := next(words, None)) is not None:
            taken.append((name, following))
        else:
            raise ConfigError(f"{name}, an option of spark-submit, needs a value")
    for value in (value for name, value in taken if name == "--conf" and "=" not in value):
        raise ConfigError(
            f"--conf {value} is no setting of Spark, which is key=value",
            advice="the configuration's file is --config",
        )
    options = SubmitOptions(tuple(taken), loads_defaults)
    if options.remote is not None and options.master is not None:
        raise ConfigError(
            "--remote and --master cannot be used together",
            advice="--remote is the address of a Spark Connect server, which has a master",
        )
    return options, rest


# The options of this process's command line.
command_line = SubmitOptions()
