"""What tables and notes call a combination: its choices, in as few words as tell it apart."""

import re
from collections import Counter
from collections.abc import Callable, Sequence

from explorer.blueprint.axes import AS_WRITTEN, spoken
from explorer.report.document import Combination, Document
from explorer.report.units import printable

Namer = Callable[[Combination], str]

_WITH_PARAMETERS = re.compile(r"[^:{}\[\]]+:[^:=]+=")


def namer(document: Document) -> Namer:
    """The function from a combination to its name; the blueprint's name where there are no axes."""
    if not document["axes"]:
        return lambda combination: printable(document["blueprint"]["name"])
    words = {axis: _words(axis, values) for axis, values in document["axes"].items()}

    def name(combination: Combination) -> str:
        choices = combination["choices"]
        chosen = [words[axis].get(choices[axis], choices[axis]) for axis in words if axis in choices]
        return printable(", ".join(chosen) or combination["label"])

    return name


def _words(axis: str, values: Sequence[str]) -> dict[str, str]:
    """A component without its parameters where its name says which it is; a plain value with the field it is for."""
    components = Counter(value.partition(":")[0] for value in values)
    told_apart = AS_WRITTEN not in values  # which may be the same component with other parameters
    words = {value: spoken(axis, value) for value in values}
    for value in values:
        component = value.partition(":")[0]
        alone = told_apart and _WITH_PARAMETERS.match(value) and components[component] == 1
        if alone and words[value] == value:
            words[value] = component
    return words
