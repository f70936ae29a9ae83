"""Make tests/imports/qcg: the files of a real QCG-PilotJob 0.14.2. Run it by hand, with a Python
that has qcg-pilotjob:

    python make_qcg.py qcg

The jobs succeed, fail, get cancelled, have iterations, or use two nodes. One is skipped because its
dependency failed.
"""

import glob
import importlib
import os
import shutil
import sys
import tempfile

Jobs = importlib.import_module("qcg.pilotjob.api.job").Jobs
LocalManager = importlib.import_module("qcg.pilotjob.api.manager").LocalManager


def main(target: str) -> None:
    target = os.path.abspath(target)
    folder = tempfile.mkdtemp(prefix="qcg-")
    os.chdir(folder)
    manager = LocalManager(
        ["--log", "warning", "--nodes", "node1:2,node2:2", "--wd", folder], {"poll_delay": 0.5}
    )
    jobs = Jobs()
    jobs.add(name="hello", exec="/bin/echo", args=["hello"], stdout="hello.out", numCores=1)
    jobs.add(
        name="sweep",
        iteration=6,
        exec="/bin/sh",
        args=["-c", "sleep 0.1; test ${it} -ne 4"],
        numCores=1,
    )
    jobs.add(name="bad", exec="/bin/false", numCores={"exact": 2})
    jobs.add(name="never", exec="/bin/echo", after=["bad"], numCores=1)
    jobs.add(name="long", exec="/bin/sleep", args=["60"], numCores=1)
    jobs.add(name="wide", exec="/bin/true", numNodes=2, numCores=1)
    names = manager.submit(jobs)
    manager.wait4([name for name in names if name != "long"], timeout=60)
    manager.cancel("long")
    manager.wait4(["long"], timeout=60)
    manager.finish()
    manager.cleanup()
    service_folder = glob.glob(os.path.join(folder, ".qcgpjm-service-*"))[0]
    for name in ("track.reqs", "track.states", "jobs.report", "final_status.json"):
        with open(os.path.join(service_folder, name)) as file:
            text = file.read().replace(folder, "/scratch/run").replace(sys.executable, "python3")
        with open(os.path.join(target, name), "w") as file:
            file.write(text)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main(sys.argv[1])
