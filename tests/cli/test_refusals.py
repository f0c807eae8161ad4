"""What the option parser refuses, for every verb and option: one line on stderr, exit 2, the thing and the mend."""

import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from tfbench.cli.app import app
from tfbench.cli.main import main

COMMAND = typer.main.get_command(app)


def leaves(group: Any, at: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, verb in group.commands.items():
        yield from leaves(verb, (*at, name)) if hasattr(verb, "commands") else [((*at, name), verb)]


def is_option(param: Any) -> bool:
    return str(param.param_type_name) == "option"


VERBS = dict(leaves(COMMAND))
OPTIONS = [(verb, param) for verb, command in VERBS.items() for param in command.params if is_option(param)]
VALUED = [(verb, param) for verb, param in OPTIONS if not param.is_flag]
FLAGS = [(verb, param) for verb, param in OPTIONS if param.is_flag and param.name != "help"]
NUMBERS = [
    (verb, param)
    for verb, param in VALUED
    if any(kind in str(param.type_descriptor.annotation) for kind in ("int", "float"))
]
NEEDED = [(verb, param) for verb, command in VERBS.items() for param in command.params if param.required]


def named(pairs: Any) -> list[str]:
    return [" ".join((*verb, param.name)) for verb, param in pairs]


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Any]:
    """Runs the command line in this process; gives the one line it says."""
    handler = signal.getsignal(signal.SIGINT)

    def run(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["tfbench", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        assert (end.value.code, out) == (2, ""), err
        assert err.startswith("tfbench: ") and err.count("\n") == 1, err
        assert "Usage:" not in err and "Traceback" not in err
        return err.removeprefix("tfbench: ").rstrip()

    yield run
    signal.signal(signal.SIGINT, handler)


def words(param: Any) -> list[str]:
    """What gives a parameter a value that is never looked at."""
    return [param.opts[0], "x"] if is_option(param) else ["x"]


def filled(command: Any) -> list[str]:
    return [word for param in command.params if param.required for word in words(param)]


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_an_unknown_option(verb: tuple[str, ...], refused: Any) -> None:
    line = refused(*verb, *filled(VERBS[verb]), "--zzyzx", "3")
    assert line == f'{" ".join(verb)}: no option "--zzyzx"; tfbench {" ".join(verb)} --help lists them'


@pytest.mark.parametrize(("verb", "param"), OPTIONS, ids=named(OPTIONS))
def test_a_mistyped_option_names_the_one_that_is_meant(verb: tuple[str, ...], param: Any, refused: Any) -> None:
    wrong = param.opts[0][:-1] + param.opts[0][-1] * 2
    assert refused(*verb, wrong) == f'{" ".join(verb)}: no option "{wrong}"; did you mean {param.opts[0]}?'


@pytest.mark.parametrize(("verb", "param"), VALUED, ids=named(VALUED))
def test_an_option_without_its_value(verb: tuple[str, ...], param: Any, refused: Any) -> None:
    assert refused(*verb, param.opts[0]) == f"{param.opts[0]} needs a value; put it behind"


@pytest.mark.parametrize(("verb", "param"), FLAGS, ids=named(FLAGS))
def test_a_flag_with_a_value(verb: tuple[str, ...], param: Any, refused: Any) -> None:
    assert refused(*verb, f"{param.opts[0]}=3").startswith(f"{param.opts[0]} takes no value; ")


@pytest.mark.parametrize(("verb", "param"), NUMBERS, ids=named(NUMBERS))
def test_a_value_that_is_no_number(verb: tuple[str, ...], param: Any, refused: Any) -> None:
    line = refused(*verb, *filled(VERBS[verb]), param.opts[0], "x")
    assert line.startswith(f'{" ".join(verb)}: {param.opts[0]} "x": must be a ') and line.endswith("number")


@pytest.mark.parametrize(("verb", "param"), NEEDED, ids=named(NEEDED))
def test_what_is_missing_is_named_with_what_it_is(verb: tuple[str, ...], param: Any, refused: Any) -> None:
    order = VERBS[verb].params
    later = [param] if is_option(param) else order[order.index(param) :]
    given = [word for one in order if one.required and one not in later for word in words(one)]
    name = param.opts[0] if is_option(param) else param.name.upper()
    line = refused(*verb, *given)
    assert line.startswith(f"{' '.join(verb)}: {name} is missing; give ") and not line.endswith("give it")


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != ("ingest",)], ids=" ".join)
def test_too_many_arguments(verb: tuple[str, ...], refused: Any) -> None:
    line = refused(*verb, *filled(VERBS[verb]), "y", "z", "4]")
    assert line.startswith(f"{' '.join(verb)}: too many arguments: ") and '4]"; it takes ' in line


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["rum"], 'no verb "rum"; did you mean run?'),
        (["comparee", "a", "b"], 'no verb "comparee"; did you mean compare?'),
        (["engine", "serv"], 'engine: no verb "serv"; did you mean serve?'),
        (["engine", "foo"], 'engine: no verb "foo"; there is serve'),
        (["--verson"], 'no option "--verson"; did you mean --version?'),
        (["run", "m", "--workers", "0"], 'run: --workers "0": must be at least 1'),
        (["run", "m", "--workers", "65"], 'run: --workers "65": must be at most 64'),
        (["run", "m", "--repeats", "3"], 'run: no option "--repeats"; --set load.repeats=… sets that key'),
        (["run", "m", "--rate", "3"], 'run: no option "--rate"; --set load.rates=… sets that key'),
        (["freeze", "m", "--model", "x"], 'freeze: no option "--model"; --set model.name=… sets that key'),
        (["report", "--repeats", "3"], 'report: no option "--repeats"; tfbench report --help lists them'),
        (["sql", "--\x1b[31m\n"], 'sql: no option "--\ufffd[31m\ufffd"; tfbench sql --help lists them'),
        (["sql"], 'sql: QUERY is missing; give DuckDB SQL, e.g. "select * from runs"'),
    ],
)
def test_lines_as_they_are(arguments: list[str], line: str, refused: Any) -> None:
    assert refused(*arguments) == line


@pytest.mark.parametrize("name", ["nope", "", "\x1b[2J\n", "x" * 5000])
def test_an_unknown_verb_that_is_near_none_tells_all(name: str, refused: Any) -> None:
    line = refused(name)
    assert line.startswith('no verb "') and line.endswith(f"there is {', '.join(COMMAND.commands)}")  # type: ignore[attr-defined]
    assert line.isprintable() and len(line) < 250
    assert refused("--").startswith("the verb is missing; there is run, ")


def test_an_option_before_its_verb_is_told_where_it_belongs(refused: Any) -> None:
    line = refused("--json", "report")
    assert line.startswith('no option "--json" here; it is one of run, ') and line.endswith(": put it behind the verb")


@pytest.mark.parametrize("arguments", [[], ["engine"]])
def test_no_verb_at_all_shows_those_there_are(
    arguments: list[str], refused: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["tfbench", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    out, err = capsys.readouterr()
    assert (end.value.code, out) == (2, "") and "Commands:" in err
