#!/bin/sh
# step TEXT COMMAND...: one line that says what is being done, then the seconds it took. What the command printed is
# shown only where it failed. Run as a program, or read by another script with `.` for its function.

step() {
    printf '%s ... ' "$1"
    shift
    step_output=$(mktemp)
    step_begin=$(date +%s)
    step_status=0
    "$@" >"$step_output" 2>&1 </dev/null || step_status=$?
    if [ "$step_status" -eq 0 ]; then
        echo "$(($(date +%s) - step_begin)) s"
    else
        echo failed
        cat "$step_output" >&2
    fi
    rm -f "$step_output"
    return "$step_status"
}

[ "${0##*/}" != step.sh ] || step "$@"
