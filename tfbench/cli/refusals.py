"""What the option parser refuses, in one line that names the thing and the mend."""

import difflib
from collections.abc import Iterable
from typing import Any

from typer.core import TyperGroup

from tfbench.core.errors import UsageError

_KINDS = {"int_parsing": "a whole number", "float_parsing": "a number"}
_BOUNDS = {
    "greater_than_equal": ("at least", "ge"),
    "less_than_equal": ("at most", "le"),
}


class Verbs(TyperGroup):
    """A group of verbs that names the nearest one in place of a verb it lacks."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Raises UsageError for a verb that isn't there."""
        name = args[0]
        if name not in self.commands and not name.startswith("-"):
            near = difflib.get_close_matches(name, self.commands, n=1)
            mend = f"did you mean {near[0]}?" if near else _there_is(self.commands)
            raise UsageError(_of(ctx, f"no verb {_quoted(name)}; {mend}"))
        return super().resolve_command(ctx, args)


def refusal_line(refused: Any) -> str:
    """The line for an exception of typer's parser, told by the attributes that its kinds have."""
    context, option = getattr(refused, "ctx", None), getattr(refused, "option_name", None)
    param = getattr(refused, "param", None)
    if option is not None:
        line = _missing_value(option, refused.message) if context is None else _unknown_option(option, context)
    elif param is None:
        line = _otherwise(refused.format_message(), context)
    elif hasattr(refused, "param_type"):
        line = f"{_name(param)} is missing; give {_inside(param.help or 'it')}"
    else:
        line = f"{_name(param)} {_bad_value(refused)}"
    return line if context is None else _of(context, line)


def _of(context: Any, line: str) -> str:
    """`line` with the verb it is about."""
    verb = context.command_path.partition(" ")[2]
    return f"{verb}: {line}" if verb else line


def _there_is(verbs: Iterable[str]) -> str:
    return f"there is {', '.join(verbs)}"


def _inside(sentence: str) -> str:
    """A help text as the rest of a sentence; a name such as DuckDB keeps its capital."""
    first = sentence.partition(" ")[0]
    start = first.lower() if first == first.capitalize() else first
    return (start + sentence[len(first) :]).rstrip(".")


def _name(param: Any) -> str:
    return str(param.opts[0]) if param.param_type_name == "option" else str(param.name).upper()


def _missing_value(option: str, message: str) -> str:
    if "does not take" in message:
        return f"{option} takes no value; leave out what is joined to it"
    return f"{option} needs a value; put it behind"


def _unknown_option(option: str, context: Any) -> str:
    commands = getattr(context.command, "commands", {})
    verbs = [name for name, verb in commands.items() if option in _options(verb.params)]
    if verbs:
        return f"no option {_quoted(option)} here; it is one of {', '.join(verbs)}: put it behind the verb"
    own = {name.lstrip("-"): name for name in _options(context.command.get_params(context))}
    keys = _manifest_keys() if "set" in own else {}
    bare, key = option.lstrip("-"), option.lstrip("-").replace("-", "_")
    near = [] if key in keys else difflib.get_close_matches(bare, own, n=1, cutoff=0.7)
    near_keys = difflib.get_close_matches(key, keys, n=1, cutoff=0.8)
    mend = f"{context.command_path} --help lists them"
    if near:
        mend = f"did you mean {own[near[0]]}?"
    elif near_keys:
        mend = f"--set {keys[near_keys[0]]}=… sets that key"
    return f"no option {_quoted(option)}; {mend}"


def _options(params: Iterable[Any]) -> list[str]:
    return [name for param in params if param.param_type_name == "option" for name in param.opts]


def _manifest_keys() -> dict[str, str]:
    """The manifest's keys, those of load first, by the name that their option would have; of a table its name."""
    from tfbench.verdict.allowing import manifest_keys

    keys = sorted(manifest_keys(), key=lambda key: not key.startswith("load."))
    tables = {key.rpartition(".")[0] for key in keys}
    named = {table: f"{table}.name" for table in tables if f"{table}.name" in keys}
    return {key.rpartition(".")[2]: key for key in reversed(keys) if key not in tables} | named


def _bad_value(refused: Any) -> str:
    """The value and what it must be, from what pydantic says of it."""
    errors: list[dict[str, Any]] = getattr(refused.__cause__, "errors", list)()
    if not errors:
        return f"can't be taken: {refused.message}"
    kind, given, limits = errors[0]["type"], errors[0]["input"], errors[0].get("ctx", {})
    if kind in _BOUNDS:
        words, key = _BOUNDS[kind]
        must = f"be {words} {limits[key]:g}"
    else:
        must = f"be {_KINDS[kind]}" if kind in _KINDS else str(errors[0]["msg"]).removeprefix("Input should ")
    return f"{_quoted(given)}: must {must}"


def _otherwise(message: str, context: Any) -> str:
    """What has no kind of its own: too many arguments, no verb, or whatever a later typer thinks of."""
    extra = message.partition("unexpected extra argument")[2].partition("(s) ")[2].strip("()")
    if hasattr(getattr(context, "command", None), "commands"):
        return f"the verb is missing; {_there_is(context.command.commands)}"
    if context is None or not extra:
        return message.rstrip(".")
    takes = [str(param.name).upper() for param in context.command.params if param.param_type_name == "argument"]
    only = f"it takes {' '.join(takes)}" if takes else "it takes no arguments, only options"
    return f"too many arguments: {_quoted(extra)}; {only} (quote what has blanks)"


def _quoted(text: object) -> str:
    line = "".join(c if c.isprintable() else "\ufffd" for c in str(text))
    return f'"{line if len(line) <= 80 else line[:79] + "…"}"'
