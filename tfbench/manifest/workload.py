"""The `[workload]` table: what is sent."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from tfbench.manifest.base import Positive, Table, Text, Whole, refusal
from tfbench.manifest.dists import Empirical, Tokens
from tfbench.manifest.limits import MAX_CLASSES, MAX_TOKENS


def _has_pairs(tokens: Any) -> bool:
    return isinstance(tokens, Empirical) and tokens.pairs is not None


class TrafficClass(Table):
    """A kind of request in a mix. `share` is relative to the other classes'; what is unset is the workload's.

    `lora` is the adapter that serves it, one of `model.lora`, and is asked for in place of the model's name.
    """

    name: Text = Field(examples=['"chat"'])
    share: Annotated[Positive, Field(le=1e6)] = Field(examples=["0.7"])
    input_tokens: Tokens | None = Field(None, examples=["512"])
    output_tokens: Tokens | None = Field(None, examples=["128"])
    tenant: Text | None = Field(None, examples=['"team-a"'])
    lora: Text | None = Field(None, examples=['"adapter-a"'])


class Workload(Table):
    """What is sent: token counts of prompts and answers. With `pairs` the input carries the output's counts too.

    With `classes` each request belongs to one of them, drawn by seed and index in proportion to their shares. All
    prompts of a run begin with the same `shared_prefix_tokens`, as with a system prompt, which another run doesn't
    share; `input_tokens` are each prompt's own and come on top.
    """

    kind: Literal["synthetic"] = "synthetic"
    input_tokens: Tokens = Field(512, examples=["512", '{ dist = "lognormal", mean = 512, cv = 0.8, max = 4096 }'])
    output_tokens: Tokens | None = Field(None, examples=["128"])
    shared_prefix_tokens: Annotated[Whole, Field(ge=0, le=MAX_TOKENS)] = Field(0, examples=["1024"])
    classes: Annotated[tuple[TrafficClass, ...], Field(strict=False, max_length=MAX_CLASSES)] = Field(
        (), examples=['[{ name = "chat", share = 0.7 }, { name = "batch", share = 0.3, input_tokens = 2048 }]']
    )

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, data: Any) -> Any:
        if not isinstance(data, dict) or data.get("output_tokens") is not None:
            return data
        source = data.get("input_tokens")
        pairs = source.get("pairs") if isinstance(source, dict) else getattr(source, "pairs", None)
        return data if pairs is not None else {**data, "output_tokens": 128}

    @model_validator(mode="after")
    def _check(self) -> Self:
        if _has_pairs(self.input_tokens):
            if self.output_tokens is not None:
                raise refusal("is already given by input_tokens.pairs; remove it", "output_tokens")
        elif _has_pairs(self.output_tokens):
            raise refusal("pairs belong to input_tokens, which then carries both; move them there", "output_tokens")
        names = [one.name for one in self.classes]
        for i, one in enumerate(self.classes):
            if names.index(one.name) < i:
                raise refusal(f'"{one.name}" is the name of an earlier class; give it another', "classes", i, "name")
            self._check_lengths(one, "classes", i, "output_tokens")
        return self

    def _check_lengths(self, one: TrafficClass, *at: str | int) -> None:
        source, given = one.input_tokens, one.output_tokens is not None
        if _has_pairs(one.output_tokens):
            raise refusal("pairs belong to input_tokens, which then carries both; move them there", *at)
        if given and _has_pairs(source):
            raise refusal("is already given by the class's input_tokens.pairs; remove it", *at)
        if given and source is None and _has_pairs(self.input_tokens):
            raise refusal("is already given by workload.input_tokens.pairs; remove it, or give input_tokens too", *at)
        if not given and source is not None and not _has_pairs(source) and self.output_tokens is None:
            raise refusal("is required: the workload's pairs are not used by this class; add output_tokens = 128", *at)
