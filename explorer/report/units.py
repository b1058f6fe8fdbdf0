"""Numbers as a reader wants them in a table; JSON and CSV keep every digit."""

UNKNOWN = "unknown"
NOTHING = "–"
UNEVEN = "uneven"

Steps = tuple[tuple[float, str], ...]

PARAMS: Steps = ((1e6, "M"), (1e9, "B"), (1e12, "T"))
OPERATIONS: Steps = ((1e6, "M"), (1e9, "G"), (1e12, "T"), (1e15, "P"), (1e18, "E"))
BYTES: Steps = ((1e6, "MB"), (1e9, "GB"), (1e12, "TB"), (1e15, "PB"))


def short(value: int | None, steps: Steps) -> str:
    """218112000 -> "218.1 M": four digits and the step that leaves 1 to 999 before the point; exact below a million."""
    if value is None:
        return UNKNOWN
    if value < 1_000_000:
        return exact(value)
    texts = [(four_digits(value / scale), suffix) for scale, suffix in steps]
    fitting = [text for text in texts if float(text[0].replace(",", "")) < 1000]
    return " ".join(fitting[0] if fitting else texts[-1])


def exact(value: float | None) -> str:
    """131072 -> "131,072"; of a mean that is no whole number two places, 6880.5 -> "6,880.50"."""
    if value is None:
        return UNKNOWN
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def four_digits(value: float) -> str:
    """Four significant digits: 8.03 -> "8.030", 0.0123 -> "0.01230", 12345.6 -> "12,346"."""
    if value >= 999.95:
        return f"{value:,.0f}"
    return f"{value:#.4g}"


def percent(value: float | None, base: float | None) -> str:
    """100 (value - base) / base with its sign; "0%" only when both are equal, "–" when one is unknown."""
    if value is None or base is None:
        return NOTHING
    if value == base:
        return "0%"
    if base == 0:
        return "from 0"
    change = 100 * (value - base) / base
    if abs(change) >= 99.95:
        return f"{change:+,.0f}%"
    if abs(change) < 0.001:
        return "+<0.001%" if change > 0 else "-<0.001%"
    return f"{change:+.1f}%" if abs(change) >= 0.1 else f"{change:+.1g}%"


def share(value: int | None, whole: int | None) -> str:
    """100 value / whole with one place, "<0.1%" for less; "–" where one is unknown or the whole is 0."""
    if value is None or not whole:
        return NOTHING
    if 0 < 1000 * value < whole:
        return "<0.1%"
    return f"{100 * value / whole:.1f}%" if value else "0%"


def plural(count: int, word: str) -> str:
    """(1, "row") -> "1 row"; (1200, "row") -> "1,200 rows"; (2, "process") -> "2 processes"."""
    return f"{count:,} {word}{'' if count == 1 else 'es' if word.endswith('s') else 's'}"


def printable(text: object) -> str:
    """The text on one line, without control characters (a name from a blueprint may hold an escape sequence)."""
    return "".join(sign if sign.isprintable() else " " for sign in str(text))
