"""Where the wish for a cluster comes from: flags, environment, profile, file, in this order.

`tidelog.toml`, or `[tool.tidelog]` of a `pyproject.toml`, is taken from the current folder; another
file is named with `--config`. Its form:

```toml
[cluster]
brokers = 3
[broker]
num.partitions = 6
[broker.1]
max.connections = 100
[profile.ci]
cluster.brokers = 1
broker.num.partitions = 1
```

A profile is a file in the file, taken where it is asked for by name; what it says wins over what
stands outside of it.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from tidelog.kernel.config import SettingError, Table
from tidelog.kernel.limits import BROKERS_MAX, STANDBYS_MAX

BASE_PORT_DEFAULT = 9092
BROKERS_DEFAULT = 3
PORT_MAX = 65_535
_CLUSTER_KEYS = ("brokers", "base-port", "standby-coordinators")
_OUR_VARIABLES = frozenset(
    {
        "BASE_PORT",
        "BOOTSTRAP",
        "BROKERS",
        "CLUSTER",
        "COMPLETE",
        "CONFIG",
        "DATA",
        "DEBUG",
        "JSON",
        "PROFILE",
        "STANDBY_COORDINATORS",
    }
)
_TABLES = frozenset({"broker", "cluster", "profile"})
_EVERY_BROKER = -1
_LAST = f"broker.{BROKERS_MAX - 1}"


class Origin(Struct, frozen=True):
    """A setting as it was given, and where: `broker` is -1 where it is for all."""

    name: str
    text: str
    where: str
    broker: int = _EVERY_BROKER


class Wish(Struct):
    """What the user wants to run. `settings` are checked texts."""

    brokers: int | None = None
    base_port: int | None = None
    standby_coordinators: int | None = None
    settings: dict[str, str] = field(default_factory=dict)
    broker_settings: dict[int, dict[str, str]] = field(default_factory=dict)

    def settings_of(self, broker: int) -> dict[str, str]:
        return self.settings | self.broker_settings.get(broker, {})


class Flags(Struct, frozen=True):
    """The command line's part."""

    settings: Sequence[str] = ()
    config: str | None = None
    brokers: int | None = None
    base_port: int | None = None
    standby_coordinators: int | None = None
    profile: str | None = None


def gather(flags: Flags, environment: Mapping[str, str], folder: Path, table: Table) -> Wish:
    """All sources, the strongest last to speak. SettingError says which setting, and where."""
    cluster, given = _given(flags, environment, folder, table)
    wish = Wish(
        brokers=_number("brokers", flags.brokers, environment, cluster, BROKERS_MAX),
        base_port=_number("base-port", flags.base_port, environment, cluster, PORT_MAX),
        standby_coordinators=_number(
            "standby-coordinators", flags.standby_coordinators, environment, cluster, STANDBYS_MAX
        ),
    )
    for origin in given:
        _take(wish, origin, table)
    return wish


def origins(
    flags: Flags, environment: Mapping[str, str], folder: Path, table: Table
) -> list[Origin]:
    """Every setting that is given anywhere, checked; of one name and broker the last one counts."""
    _, given = _given(flags, environment, folder, table)
    wish = Wish()
    for origin in given:
        _take(wish, origin, table)
    return given


def _given(
    flags: Flags, environment: Mapping[str, str], folder: Path, table: Table
) -> tuple[Mapping[str, object], list[Origin]]:
    cluster, given = _from_files(flags, folder)
    given += _from_environment(environment, table)
    given += [_from_flag(text) for text in flags.settings]
    return cluster, given


def _take(wish: Wish, origin: Origin, table: Table) -> None:
    try:
        table.check(origin.name, origin.text)
    except SettingError as error:
        raise SettingError(f"{origin.where}: {error}") from error
    if origin.broker == _EVERY_BROKER:
        wish.settings[origin.name] = origin.text
    else:
        wish.broker_settings.setdefault(origin.broker, {})[origin.name] = origin.text


def _number(
    name: str,
    flag: int | None,
    environment: Mapping[str, str],
    cluster: Mapping[str, object],
    high: int,
) -> int | None:
    variable = f"TIDELOG_{name.upper().replace('-', '_')}"
    if flag is not None:
        return flag
    low = 1 if name == "brokers" else 0
    for where, value in ((variable, environment.get(variable)), (name, cluster.get(name))):
        if value is None:
            continue
        if not str(value).isdecimal() or not low <= int(str(value)) <= high:
            raise SettingError(f"{where}={value!r}: must be between {low} and {high}")
        return int(str(value))
    return None


def _from_flag(text: str) -> Origin:
    """`KEY=VALUE` or `broker.1:KEY=VALUE`."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise SettingError(f"--set {text!r}: must be KEY=VALUE or broker.ID:KEY=VALUE")
    head, colon, name = key.strip().partition(":")
    if not colon:
        return Origin(head, value.strip(), "--set")
    word, _, number = head.partition(".")
    if word != "broker" or not number.isdecimal() or int(number) >= BROKERS_MAX:
        raise SettingError(f"--set {text!r}: before the colon must stand broker.0 to {_LAST}")
    return Origin(name.strip(), value.strip(), "--set", int(number))


def _from_environment(environment: Mapping[str, str], table: Table) -> list[Origin]:
    """TIDELOG_… and, as in Kafka's images, KAFKA_…; ours is the stronger.

    A KAFKA_ variable that is no setting (KAFKA_HOME, KAFKA_OPTS) belongs to someone else.
    """
    kafkas, ours = [], []
    for variable, value in sorted(environment.items()):
        family, _, rest = variable.partition("_")
        if not rest or family not in {"KAFKA", "TIDELOG"}:
            continue
        name = setting_name(rest)
        origin = Origin(name, value, variable)
        if family == "KAFKA" and name in table:
            kafkas.append(origin)
        elif family == "TIDELOG" and rest not in _OUR_VARIABLES:
            ours.append(origin)
    return kafkas + ours


def setting_name(variable: str) -> str:
    """As Kafka's images read a variable: `_` is a dot, `__` an underscore, `___` a dash.

    >>> setting_name("LOG_RETENTION_MS"), setting_name("A__B___C")
    ('log.retention.ms', 'a_b-c')
    """
    lowered = variable.lower().replace("___", "-").replace("__", "\0")
    return lowered.replace("_", ".").replace("\0", "_")


_Said = tuple[Mapping[str, object], list[Origin]]
"""Of one file: what stands under [cluster], and the settings."""


def _from_files(flags: Flags, folder: Path) -> _Said:
    if flags.config is not None:
        return _read(Path(flags.config), flags.profile, named=True)
    for name in ("tidelog.toml", "pyproject.toml"):
        if (folder / name).is_file():
            return _read(folder / name, flags.profile, named=False)
    if flags.profile is not None:
        raise SettingError(
            f"--profile {flags.profile}: there is no tidelog.toml here; name a file with --config"
        )
    return {}, []


def _read(path: Path, profile: str | None, *, named: bool) -> _Said:
    """A file named on the command line must be there and readable, and so must a found one."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise SettingError(f"--config {path}: there is no such file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"cannot read {path}: {_reason(error)}") from error
    if path.suffix == ".properties":
        if profile is not None:
            raise SettingError(f"--profile {profile}: {path.name} has none, a .toml file can")
        return {}, [Origin(k, v, f"{path.name} line {n}") for n, k, v in properties(text)]
    document = _parsed(path.name, text)
    if not named and path.name == "pyproject.toml":
        document = _table(path.name, document.get("tool", {}), "tidelog")
    return _from_toml(path.name, document, profile)


def _reason(error: OSError | UnicodeDecodeError) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else "it is not UTF-8"


def properties(text: str) -> Iterable[tuple[int, str, str]]:
    """Lines of a .properties file: number, key, value."""
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped[0] in "#!":
            continue
        key, equals, value = stripped.partition("=")
        if not equals:
            raise SettingError(f"line {number}: {stripped!r} is not KEY=VALUE")
        yield number, key.strip(), value.strip()


def _from_toml(name: str, document: Mapping[str, Any], profile: str | None) -> _Said:
    profiles = _table(name, document, "profile")
    cluster, given = _said(name, name, document)
    if profile is None:
        return cluster, given
    if profile not in profiles:
        raise SettingError(
            f"--profile: {name} has no profile {profile!r}{_meant(profile, profiles)}"
        )
    place = f"{name} [profile.{profile}]"
    stronger, more = _said(name, place, _table(name, profiles, profile))
    return {**cluster, **stronger}, given + more


def _said(name: str, place: str, document: Mapping[str, Any]) -> _Said:
    """What a file says, or a profile in it: `place` is told as the origin."""
    cluster = _table(name, document, "cluster")
    for key in cluster:
        _check_cluster_key(name, key)
    rest = {key: value for key, value in document.items() if key not in _TABLES}
    origins = [Origin(key, value, place) for key, value in _flat(name, rest)]
    return cluster, origins + _of_brokers(name, place, _table(name, document, "broker"))


def _parsed(name: str, text: str) -> Mapping[str, Any]:
    import tomllib  # noqa: PLC0415 -- 10 ms that only those with a file pay

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingError(f"{name}: {error}") from error


def _check_cluster_key(name: str, key: str) -> None:
    if key not in _CLUSTER_KEYS:
        raise SettingError(f"{name}: [cluster] has no {key!r}{_meant(key, _CLUSTER_KEYS)}")


def _meant(word: str, known: Iterable[str]) -> str:
    """The nearest, else all that there are: they are few."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; it has: {', '.join(known) or 'none'}"


def _of_brokers(name: str, place: str, brokers: Mapping[str, Any]) -> list[Origin]:
    """The table of all brokers; a number in it is the table of one."""
    origins = []
    for key, value in brokers.items():
        where, broker = f"{place} [broker]", _EVERY_BROKER
        rows: Mapping[str, Any] = {key: value}
        if key.isdecimal() and int(key) < BROKERS_MAX:
            where, broker = f"{place} [broker.{key}]", int(key)
            rows = _table(name, brokers, key)
        origins += [Origin(k, v, where, broker) for k, v in _flat(name, rows)]
    return origins


def _table(name: str, document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = document.get(key, {})
    if not isinstance(value, dict):
        raise SettingError(f"{name}: [{key}] must be a table")
    return value


def _flat(name: str, document: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    """TOML reads `num.partitions = 3` as tables in tables; the key is the whole path again."""
    for key, value in document.items():
        if isinstance(value, dict):
            yield from _flat(name, value, f"{prefix}{key}.")
        else:
            yield prefix + key, _text(name, prefix + key, value)


def _text(name: str, key: str, value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str() | int() | float():
            return str(value)
        case list():
            return ",".join(_text(name, key, element) for element in value)
        case _:
            raise SettingError(f"{name}: {key} must be a text, a number, true, false or a list")
