"""`logshipper completion SHELL`: prints what makes the shell complete commands, options, jobs and
keys."""

import argparse
import sys

from logshipper_observe.commands.options import describe

PROGRAMS = ("logshipper", "logshipper-agent", "logshipper-grafana")
SHELLS = ("bash", "zsh", "fish")
HOW_TO = """\
put this line into the file that your shell reads when it starts:
  bash  ~/.bashrc                    eval "$(logshipper completion bash)"
  zsh   ~/.zshrc, after compinit     eval "$(logshipper completion zsh)"
  fish  ~/.config/fish/config.fish   logshipper completion fish | source
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    describe(
        parser,
        "Prints the script that makes a shell complete commands, options, jobs and keys.",
        HOW_TO,
    )
    parser.add_argument("shell", choices=SHELLS)


def call(args: argparse.Namespace) -> int:
    from argcomplete.shell_integration import shellcode

    sys.stdout.write(shellcode(list(PROGRAMS), shell=args.shell))
    return 0
