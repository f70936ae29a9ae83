"""Password options of well-known programs, such as `curl -u` and `mysql -pPASSWORD`. Pure."""

from os.path import basename

from logshipper.named_tuple import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

MASK = "***"
_SEPARATORS = frozenset(("|", "||", "&&", ";", "&"))  # another command begins behind these


class _Program(NamedTuple):
    """A program's ways to take a password."""

    options: tuple[str, ...] = ()  # the next word is the value, or the text behind option or `=`
    attached: tuple[str, ...] = ()  # as options, but the next word is never the value
    subcommand: str = ""  # without this word before them, the options mean something else
    sign: str = ""  # a value without it holds no password
    flags: str = ""  # letters that may precede an option's in one word, as in `curl -su`


_BY_NAMES = {
    "7z 7za mariadb mysql mysqladmin mysqldump mysqlimport": _Program(attached=("-p",)),
    "az": _Program(("-p",), subcommand="login"),
    "curl": _Program(
        ("-u", "--user", "-U", "--proxy-user", "--oauth2-bearer", "-b"),
        flags="#0123456BGIJLMNORSVZafgijklnpqsv",
    ),
    "docker helm podman": _Program(("-p", "--creds"), subcommand="login"),
    "http https redis-cli": _Program(("-a",)),
    "ldapadd ldapdelete ldapmodify ldapsearch ldapwhoami": _Program(("-w",)),
    "lftp": _Program(("-u",), sign=","),
    "mongo mongodump mongosh sshpass": _Program(("-p",)),
    "openssl": _Program(("-passin", "-passout", "-k")),
    "rpcclient smbclient": _Program(("-U", "--user"), sign="%"),
    "skopeo": _Program(("--creds", "--src-creds", "--dest-creds")),
    "sqlcmd unzip zip": _Program(("-P",)),
}
_PROGRAMS = {name: program for names, program in _BY_NAMES.items() for name in names.split()}
NAMES = tuple(_PROGRAMS)


def masked_passwords(words: "Sequence[str]") -> list[str]:
    """A command line with MASK in place of the passwords of these programs."""
    masked: list[str] = []
    program: _Program | None = None
    has_subcommand = hides_next = False
    for word in words:
        if word in _SEPARATORS:
            program = None
        elif program is None or basename(word) in _PROGRAMS:
            program = _PROGRAMS.get(basename(word), program)
            has_subcommand = program is not None and not program.subcommand
        elif hides_next:
            masked.append(MASK if program.sign in word else word)
            hides_next = False
            continue
        elif word == program.subcommand:
            has_subcommand = True
        elif has_subcommand:
            hides_next = _without_flags(word, program) in program.options
            masked.append(word if hides_next else _without_value(word, program))
            continue
        hides_next = False
        masked.append(word)
    return masked


def _without_value(word: str, program: _Program) -> str:
    """Mask a word that may be an option with its value."""
    single = _without_flags(word, program)
    if single != word:
        head = word[: len(word) - len(single) + 1]
        return head + _without_value(single, program)[1:]
    for option in (*program.options, *program.attached):
        is_long = option.startswith("--")
        head = f"{option}=" if is_long else option
        value = word[len(head) :]
        is_single = is_long or len(option) == 2
        if is_single and value and word.startswith(head) and program.sign in value:
            return head + MASK
    return word


def _without_flags(word: str, program: _Program) -> str:
    """`-u` for `-su`, where `-s` takes no value."""
    if not program.flags or not word.startswith("-") or word.startswith("--"):
        return word
    return "-" + word[1:].lstrip(program.flags)
