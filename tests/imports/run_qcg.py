"""Run a real QCG-PilotJob with wrapped tasks, and print the manager's info about its jobs as JSON:

    python run_qcg.py PROGRAM WORD... < NONE    PROGRAM WORD...: logshipper, as the tasks call it

The tasks' output goes to the usual places of QCG-PilotJob's users: a file, /dev/null, or an
unspecified place. One task ends when this folder has a file `go`.
"""

import importlib
import json
import os
import sys

Jobs = importlib.import_module("qcg.pilotjob.api.job").Jobs
LocalManager = importlib.import_module("qcg.pilotjob.api.manager").LocalManager
ITERATIONS = 4


def main(logshipper: list[str]) -> None:
    manager = LocalManager(
        ["--log", "warning", "--nodes", "2", "--wd", os.getcwd()], {"poll_delay": 0.1}
    )
    program, words = logshipper[0], logshipper[1:]

    def wrapped(name: str, script: str) -> list[str]:
        return [*words, "run", "--name", name, "--", "sh", "-c", script]

    jobs = Jobs()
    sim = 'echo {\\"step\\": ${it}, \\"loss\\": 0.${it}}; echo of ${it} >&2; test ${it} -ne 2'
    jobs.add(name="sim", iteration=ITERATIONS, exec=program, args=wrapped("${jname}:${it}", sim), numCores=1,
             stdout="sim-${it}.out", stderr="sim-${it}.err")  # fmt: skip
    quiet = f"until test -e {os.getcwd()}/go; do sleep 0.1; done; echo nobody sees this"
    jobs.add(name="quiet", exec=program, args=wrapped("${jname}", quiet), numCores=1)
    jobs.add(name="post", after=["quiet"], exec=program, args=wrapped("${jname}", "echo $QCG_PM_STEP_ID"), numCores=2,
             stdout="post.out")  # fmt: skip
    names = manager.submit(jobs)
    manager.wait4all(timeout_secs=60)
    info = manager.info(names, withChilds=True)["jobs"]
    manager.finish()
    manager.cleanup()
    print(json.dumps(info))


if __name__ == "__main__":
    main(sys.argv[1:])
