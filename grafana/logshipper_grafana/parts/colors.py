"""Colours, distinct in any colour vision: Okabe and Ito's palette, and Grafana's own for words."""

from logshipper_grafana.parts import Json

BLUE, ORANGE, GREEN, RED, PURPLE, SKY, YELLOW, GREY = (
    *("#0072B2", "#E69F00", "#009E73", "#D55E00"),
    *("#CC79A7", "#56B4E9", "#F0E442", "#999999"),
)
CRIMSON, ROSE = "#E0263D", "#F2495C"  # further reds, for kinds of failures
# By words: Grafana's own colours with a contrast of 4.5 on panels of light and dark pages, which no
# single colour has.
_AS_WORDS = {
    BLUE: "blue",
    SKY: "blue",
    GREEN: "semi-dark-green",
    **dict.fromkeys((RED, CRIMSON, ROSE, ORANGE), "red"),
    PURPLE: "purple",
    GREY: "text",
}
# of series: visible as thin lines on white and on black
_OF_SERIES = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY)
_MAX_NUMBERS = 48  # of jobs with a colour


def of_word(color: str) -> str:
    return _AS_WORDS.get(color, color)


def fixed(color: str) -> Json:
    return {"mode": "fixed", "fixedColor": color}


def thresholds(*steps: tuple[float | None, str]) -> Json:
    """Return colours by words, each from its value on (None: the lowest)."""
    return {
        "mode": "absolute",
        "steps": [{"value": value, "color": of_word(color)} for value, color in steps],
    }


def limit(value: float) -> Json:
    """Return colours of good numbers below a value, and of bad ones from it on."""
    return thresholds((None, GREEN), (value, RED))


def _of_fields(pattern: str, color: str) -> Json:
    """An override for all fields with such a name."""
    return {
        "matcher": {"id": "byRegexp", "options": f"/^{pattern}/"},
        "properties": [{"id": "color", "value": fixed(color)}],
    }


def of_keys() -> list[Json]:
    """A colour for each key by its name, the same in all graphs: 9.4 has no palette by name. The
    name's length and its first character decide: a regular expression counts no better. Several
    series of a key (attempts, tasks, tags) have Grafana's own palette."""
    count = len(_OF_SERIES)
    letters = [chr(code) for code in range(ord("0"), ord("z") + 1) if chr(code).isalnum()]
    overrides: list[Json] = []
    for place, color in enumerate(_OF_SERIES):
        names = []
        for residue in range(count):
            first = "".join(
                letter for letter in letters if (ord(letter) + residue) % count == place
            )
            names.append(f"[{first}](?=[^·]{{{residue}}}(?:[^·]{{{count}}})*$)")
        overrides.append(_of_fields(f"(?:{'|'.join(names)})", color))
    return overrides


def of_jobs() -> list[Json]:
    """A colour for each job by its number, which its series' names begin with. Jobs with the colour
    of an earlier one have dashes."""
    solid = "|".join(f"0{number}" for number in range(1, len(_OF_SERIES) + 1))
    dashes = {"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [8, 6]}}
    return [
        *(
            _of_fields(f"(?:{'|'.join(numbers)})·", color)
            for color, numbers in numbers_by_color().items()
        ),
        {
            "matcher": {"id": "byRegexp", "options": f"/^(?!{solid})[0-9]+·/"},
            "properties": [dashes],
        },
    ]


def numbers_by_color() -> dict[str, list[str]]:
    """The numbers of jobs by their colours."""
    return {
        color: [f"{number:02}" for number in range(place, _MAX_NUMBERS + 1, len(_OF_SERIES))]
        for place, color in enumerate(_OF_SERIES, start=1)
    }
