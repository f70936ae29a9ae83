"""`logshipper completion SHELL`: prints a script that completes commands, options, jobs and keys."""

import argparse
import sys
from collections.abc import Sequence

from logshipper_observe.commands.options import describe

PROGRAMS = ("logshipper", "logshipper-agent", "logshipper-grafana")
SHELLS = ("bash", "zsh", "fish")
HOW_TO = """\
put this line into your shell's start file:
  bash  ~/.bashrc                    eval "$(logshipper completion bash)"
  zsh   ~/.zshrc, after compinit     eval "$(logshipper completion zsh)"
  fish  ~/.config/fish/config.fish   logshipper completion fish | source

Behind `logshipper run --` the shell completes the command to run.
"""
# The command behind `logshipper run ... --` is the shell's to complete.
_COMMAND_BEHIND_RUN = {
    "bash": r"""
__logshipper_complete() {
    local at
    if [[ ${COMP_WORDS[1]-} == run ]]; then
        for ((at = 2; at < COMP_CWORD; at++)); do
            if [[ ${COMP_WORDS[at]} == -- ]]; then
                compopt +o nospace 2> /dev/null
                __logshipper_command $((at + 1))
                return
            fi
        done
    fi
    _python_argcomplete "$@"
}
__logshipper_command() {
    if declare -F _command_offset > /dev/null; then
        _command_offset "$1"
        return
    fi
    local word=${COMP_WORDS[COMP_CWORD]} kind=-f
    [[ $COMP_CWORD == "$1" && $word != */* ]] && kind=-c
    mapfile -t COMPREPLY < <(compgen "$kind" -- "$word")
    compopt -o filenames 2> /dev/null
}
complete -o nospace -o default -o bashdefault -F __logshipper_complete logshipper
""",
    "zsh": r"""
__logshipper_complete() {
    local at=${words[(i)--]}
    if [[ ${words[2]-} == run ]] && (( at < CURRENT )); then
        shift $at words
        (( CURRENT -= at ))
        _normal
    else
        _python_argcomplete "$@"
    fi
}
compdef __logshipper_complete logshipper
""",
    "fish": r"""
function __logshipper_has_command
    set -l words (commandline -opc)
    test "$words[2]" = run; and contains -- -- $words
end
function __logshipper_command
    set -l words (commandline -opc)
    set -e words[1..(contains -i -- -- $words)]
    complete -C (string join ' ' -- (string escape -- $words) (commandline -ct))
end
complete --command logshipper --erase
complete --command logshipper -f -n 'not __logshipper_has_command' -a '(__fish_logshipper_complete)'
complete --command logshipper -f -n __logshipper_has_command -a '(__logshipper_command)'
""",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    describe(
        parser,
        "Prints the script that makes a shell complete commands, options, jobs and keys.",
        HOW_TO,
    )
    parser.add_argument("shell", choices=SHELLS)


def call(args: argparse.Namespace) -> int:
    sys.stdout.write(completion_script(PROGRAMS, args.shell))
    return 0


def completion_script(programs: Sequence[str], shell: str) -> str:
    """Return the script for one of SHELLS, for these of PROGRAMS."""
    from argcomplete.shell_integration import shellcode

    runs = PROGRAMS[0] in programs
    return shellcode(list(programs), shell=shell) + (_COMMAND_BEHIND_RUN[shell] if runs else "")
