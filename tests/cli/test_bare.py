"""An option that may stand without its value."""

import pytest

from explorer.cli.bare import filled

OPTIONS = {"--measure": ("all", ("parts", "pareto"))}


@pytest.mark.parametrize(
    ("args", "found"),
    [
        ("x.yaml --measure", "x.yaml --measure=all"),
        ("--measure x.yaml", "--measure=all x.yaml"),
        ("--measure --effort quick x.yaml", "--measure=all --effort quick x.yaml"),
        ("--measure parts x.yaml", "--measure parts x.yaml"),
        ("--measure all x.yaml", "--measure all x.yaml"),
        ("--measure 12 x.yaml", "--measure 12 x.yaml"),
        ("--measure=pareto x.yaml", "--measure=pareto x.yaml"),
        ("x.yaml -- --measure", "x.yaml -- --measure"),
        ("--measure pareot x.yaml", "--measure pareot x.yaml"),
        ("--measure parts.yaml", "--measure=all parts.yaml"),
        ("--measure gpt2-small", "--measure=all gpt2-small"),
    ],
)
def test_a_bare_option_gets_its_value(args, found):
    assert filled(args.split(), OPTIONS) == found.split()
