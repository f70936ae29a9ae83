"""The recorded programs and their commands. Python packages and those of Debian need manual
installation."""

# ruff: noqa: E501  # programs read best on one line, as on a terminal

from collections.abc import Sequence
from dataclasses import dataclass, replace

_PYTHON = "python --version"


@dataclass(frozen=True, slots=True)
class Program:
    """How to run a program. program: its name. python: a Python program, used without a command.
    command, setup, version: for sh; the recording omits setup's output.

    keys: seconds since the start, and bytes to type then. fails: it may exit with an error.
    two_streams: stderr has a separate terminal, as in a captured job. Names of these programs begin
    with `two-streams/`.
    """

    program: str
    python: str = ""
    command: str = ""
    setup: str = ""
    version: str = _PYTHON
    keys: Sequence[tuple[float, bytes]] = ()
    columns: int = 160
    rows: int = 50
    fails: bool = False
    two_streams: bool = False


def _python(
    module: str, code: str, *, columns: int = 160, rows: int = 50, setup: str = ""
) -> Program:
    version = f"python -c 'from importlib.metadata import version; print(version(\"{module}\"))'"
    return Program(module, code, version=version, columns=columns, rows=rows, setup=setup)


def _two_streams(module: str, code: str) -> Program:
    return replace(_python(module, code), two_streams=True)


def _command(
    program: str,
    command: str,
    setup: str = "",
    *,
    version: str = "",
    keys: Sequence[tuple[float, bytes]] = (),
    columns: int = 160,
    rows: int = 50,
    fails: bool = False,
    two_streams: bool = False,
) -> Program:
    version = version or f"{program} --version"
    return Program(program, "", command, setup, version, keys, columns, rows, fails, two_streams)


_TESTS = """
cat >test_some.py <<'EOF'
import pytest
@pytest.mark.parametrize("n", range(40))
def test_n(n):
    assert n % 7, {"n": n, "text": "x" * 200}
@pytest.mark.skip(reason="not now")
def test_skipped(): pass
EOF
"""
_C = """
cat >a.c <<'EOF'
#include <stdio.h>
static int twice(int n) { int unused; return n * "2"; }
int main(void) { printf("%d\\n", "text"); return wrong; }
EOF
"""
_DATA = """
import warnings
import numpy
warnings.simplefilter("ignore")
random = numpy.random.default_rng(0)
x = random.normal(size=(400, 5))
y = (x[:, 0] + random.normal(size=400) * 0.3 > 0).astype(int)
"""
_CMAKE = """
printf 'cmake_minimum_required(VERSION 3.13)\\nproject(some C)\\nadd_library(some' >CMakeLists.txt
for n in $(seq 30); do echo "int f$n(void) { int unused; return $n; }" >f$n.c; printf " f$n.c" >>CMakeLists.txt; done
printf ')\\ntarget_compile_options(some PRIVATE -Wall -fdiagnostics-color=always)\\n' >>CMakeLists.txt
"""
_SERVER = """
cat >serve.py <<'EOF'
import http.server, time
class Slow(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.send_header("Content-Length", "3000000"); self.end_headers()
        for _ in range(30): self.wfile.write(bytes(100000)); time.sleep(0.03)
    def log_message(self, *a): pass
http.server.ThreadingHTTPServer(("127.0.0.1", 8765), Slow).serve_forever()
EOF
"""
_SERVED = "python serve.py & server=$!; sleep 1; {}; kill $server"

_GO = """
cp $SOURCES/bars.go main.go
go mod init bars
go get github.com/docker/docker/pkg/jsonmessage@v27.5.1+incompatible
go mod tidy
go build -o bars .
"""
_RUST = "cargo new -q bars; cd bars; cp $SOURCES/bars.rs src/main.rs; cargo add -q indicatif; cargo build -q"


def _go(module: str, name: str) -> Program:
    version = f"go list -m -f '{{{{.Version}}}}' {module}"
    return _command(module.split("/")[2], f"./bars {name}; echo end", _GO, version=version)


def _node(package: str, code: str, more: str = "") -> Program:
    setup = f"npm init -y; npm install {package} {more}; cat >bars.mjs <<'EOF'\n{code}\nEOF\n"
    return _command(
        package,
        "node bars.mjs; echo end",
        setup,
        version=f"npm ls {package} | sed -n 's/.*@//p' | tail -1",
    )


_SLEEP = "const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));"

PROGRAMS = {
    "tqdm": _python(
        "tqdm",
        r"""
from tqdm import tqdm
import time
for i in tqdm(range(200)): time.sleep(0.01)
print("done")
""",
    ),
    "tqdm-ascii-unknown-total": _python(
        "tqdm",
        r"""
from tqdm import tqdm
import sys
for i in tqdm(iter(range(300)), mininterval=0, ascii=True, ncols=60, desc="reading"): pass
for i in tqdm(range(300), mininterval=0, ascii=" .oO", ncols=60, file=sys.stdout): pass
for i in tqdm(range(10 ** 6), unit="B", unit_scale=True, unit_divisor=1024): pass
""",
    ),
    "tqdm-nested": _python(
        "tqdm",
        r"""
from tqdm import tqdm, trange
import time
for i in tqdm(range(3), desc="epochs"):
    for j in tqdm(range(20), desc="batches %d" % i, mininterval=0): time.sleep(0.005)
for i in trange(4, desc="1st loop"):
    for j in trange(5, desc="2nd loop", leave=False):
        for k in trange(10, desc="3rd loop", leave=False): time.sleep(0.003)
    print("after", i)
print("done")
""",
        columns=80,
        rows=24,
    ),
    "tqdm-position": _python(
        "tqdm",
        r"""
from tqdm import tqdm
bars = [tqdm(total=30, position=p, desc="bar %d" % p, mininterval=0) for p in range(4)]
for i in range(30):
    for bar in reversed(bars): bar.update()
for bar in bars: bar.close()
print("done")
""",
    ),
    "tqdm-position-more-than-rows": _python(
        "tqdm",
        r"""
from tqdm import tqdm
bars = [tqdm(total=5, position=p, desc="bar %d" % p, mininterval=0) for p in range(14)]
for i in range(5):
    for bar in reversed(bars): bar.update()
for bar in bars: bar.close()
""",
        columns=70,
        rows=10,
    ),
    "tqdm-wrapped": _python(
        "tqdm",
        r"""
from tqdm import tqdm
for i in tqdm(range(20), mininterval=0, ncols=100, desc="wider than the terminal"): pass
print("done")
""",
        columns=60,
        rows=20,
    ),
    "tqdm-write": _python(
        "tqdm",
        r"""
import json
from tqdm import tqdm
for i in tqdm(range(30), mininterval=0):
    if i % 3 == 0: tqdm.write(json.dumps({"epoch": i, "loss": 1 / (i + 1)}))
for i in tqdm(range(4), mininterval=0):
    for j in tqdm(range(4), mininterval=0, leave=False): tqdm.write("i %d j %d" % (i, j))
""",
    ),
    "tqdm-write-threads": _python(
        "tqdm",
        r"""
import threading, time
from tqdm import tqdm
def work(n):
    for i in tqdm(range(40), position=n, desc="thread %d" % n, mininterval=0):
        time.sleep(0.002)
        if i % 10 == 0: tqdm.write("thread %d at %d" % (n, i))
threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print("done")
""",
    ),
    "tqdm-auto-postfix-unicode": _python(
        "tqdm",
        r"""
from tqdm.auto import tqdm, trange
bar = trange(20, desc="训练 ⚠️", mininterval=0)
for i in bar: bar.set_postfix(loss=1 / (i + 1), emoji="👩‍💻")
for i in tqdm(range(10), colour="green", mininterval=0): pass
""",
    ),
    "tqdm-concurrent": _python(
        "tqdm",
        r"""
from tqdm.contrib.concurrent import process_map, thread_map
import time
def work(n): time.sleep(0.02); return n
process_map(work, range(20), max_workers=2, chunksize=1)
thread_map(work, range(20), max_workers=3)
""",
    ),
    "tqdm-logging": _python(
        "tqdm",
        r"""
import logging, time
from tqdm import tqdm, trange
from tqdm.contrib.logging import logging_redirect_tqdm
logging.basicConfig(level=logging.INFO)
with logging_redirect_tqdm():
    for i in trange(9):
        time.sleep(0.02)
        if i == 4: logging.info("console logging redirected to `tqdm.write()`")
with tqdm(total=10, bar_format="{l_bar}{bar:20}{r_bar}{bar:-20b}") as bar:
    for i in range(10): bar.update(); bar.set_description("at %d" % i)
    bar.reset(5); bar.update(5); bar.clear(); bar.refresh()
""",
    ),
    "tqdm-rich": _python(
        "tqdm",
        r"""
import warnings; warnings.simplefilter("ignore")
from tqdm.rich import trange
import time
for i in trange(20): time.sleep(0.03)
""",
    ),
    "p_tqdm": _python(
        "p_tqdm",
        r"""
from p_tqdm import p_map, t_map
import time
def work(n): time.sleep(0.01); return n
p_map(work, range(30), num_cpus=2)
t_map(work, range(30))
""",
    ),
    "rich-progress": _python(
        "rich",
        r"""
from rich.progress import Progress
import time
with Progress() as progress:
    tasks = [progress.add_task("[red]task %d" % n, total=20) for n in range(3)]
    for i in range(20):
        time.sleep(0.02)
        for task in tasks: progress.update(task, advance=1)
        if i % 5 == 0: progress.console.print("[red]printed[/] above", i)
print("done")
""",
    ),
    "rich-progress-transient": _python(
        "rich",
        r"""
from rich.progress import Progress, SpinnerColumn, TextColumn, DownloadColumn, TransferSpeedColumn, BarColumn, TimeElapsedColumn
import time
columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeElapsedColumn()
with Progress(*columns, transient=True) as progress:
    a = progress.add_task("a", total=10**6)
    b = progress.add_task("b", total=None)
    for i in range(20):
        time.sleep(0.02); progress.advance(a, 50000); progress.advance(b, 1000)
        progress.log("step", i)
    progress.remove_task(b)
print("after")
""",
        columns=100,
        rows=12,
    ),
    "rich-live-track-status": _python(
        "rich",
        r"""
from rich.console import Console
from rich.live import Live
from rich.progress import track
from rich.table import Table
import time
console = Console()
for i in track(range(10), console=console): time.sleep(0.02)
with console.status("working") as status:
    for i in range(3):
        time.sleep(0.2)
        console.log("did", i)
        status.update("working on %d" % i)
table = Table("n", "square")
with Live(table, console=console, refresh_per_second=20) as live:
    for i in range(15):
        time.sleep(0.05)
        table.add_row(str(i), str(i * i))
with Live("gone", console=console, transient=True): pass
console.print({"a": [1, 2, 3]}, "x" * 400)
console.rule("end")
""",
    ),
    "rich-live-taller-than-screen": _python(
        "rich",
        r"""
from rich.live import Live
from rich.table import Table
import time
table = Table("n", "square")
with Live(table, refresh_per_second=20, vertical_overflow="visible") as live:
    for i in range(30):
        time.sleep(0.03)
        table.add_row(str(i), str(i * i))
print("end")
""",
        columns=60,
        rows=12,
    ),
    "rich-screen": _python(
        "rich",
        r"""
from rich.console import Console
import time
console = Console()
console.print("before")
with console.screen(): console.print("left out"); time.sleep(0.2)
console.print("after")
""",
    ),
    "rich-tables-traceback-logging": _python(
        "rich",
        r"""
import logging
from rich.console import Console
from rich.logging import RichHandler
from rich.table import Table
from rich.tree import Tree
from rich.panel import Panel
from rich.columns import Columns
from rich.markdown import Markdown
from rich.syntax import Syntax
console = Console()
logging.basicConfig(level="INFO", format="%(message)s", handlers=[RichHandler(console=console)])
logging.info("hello [1, 2]")
table = Table(title="Star Wars ⭐", show_lines=True)
table.add_column("名前", justify="right"); table.add_column("Title")
table.add_row("日本", "The Rise :thumbs_up:"); table.add_row("é", "x" * 200)
console.print(table, Panel("panel 🎉"), Columns(["a", "b", "c"] * 9))
tree = Tree("root"); tree.add("one").add("[link=http://example.org]two[/]"); console.print(tree)
console.print(Markdown("# Title\n\n* a\n* b\n\n```python\nprint(1)\n```\n"))
console.print(Syntax("def f(x):\n\treturn x\n", "python", line_numbers=True))
def divide(by): return 1 / by
try: divide(0)
except ZeroDivisionError: console.print_exception(show_locals=False)
""",
        columns=100,
        rows=30,
    ),
    "progressbar2": _python(
        "progressbar2",
        r"""
import progressbar, time
for i in progressbar.progressbar(range(40)): time.sleep(0.01)
with progressbar.ProgressBar(max_value=progressbar.UnknownLength, redirect_stdout=True) as bar:
    for i in range(20):
        if i % 5 == 0: print("printed", i)
        time.sleep(0.02); bar.update(i)
print("done")
""",
    ),
    "click": _python(
        "click",
        r"""
import click, time
with click.progressbar(range(50), label="Modifying accounts") as bar:
    for i in bar: time.sleep(0.01)
with click.progressbar(length=20, show_pos=True, fill_char="█", empty_char=" ", item_show_func=lambda i: "item %s" % i) as bar:
    for i in range(20): bar.update(1, i)
click.secho("done", fg="green", bold=True)
""",
    ),
    "halo": _python(
        "halo",
        r"""
from halo import Halo
import time
spinner = Halo(text="Loading", spinner="dots"); spinner.start(); time.sleep(0.6); spinner.text = "Still, and longer"; time.sleep(0.3); spinner.succeed("Loaded")
with Halo(text="Second", spinner="line", placement="right") as s: time.sleep(0.3); s.fail("no"); s.start("again"); time.sleep(0.2); s.stop_and_persist(symbol="🦄", text="kept")
with Halo(text="gone"): time.sleep(0.2)
print("end")
""",
    ),
    "yaspin": _python(
        "yaspin",
        r"""
from yaspin import yaspin
from yaspin.spinners import Spinners
import time
with yaspin(text="Loading", color="yellow") as sp:
    time.sleep(0.5); sp.write("> image 1 downloaded"); time.sleep(0.2); sp.write("> image 2 downloaded"); sp.ok("✔")
with yaspin(Spinners.earth, text="Earth") as sp: time.sleep(0.5); sp.fail("💥")
with yaspin(text="hidden", timer=True) as sp:
    with sp.hidden(): print("printed"); time.sleep(0.1)
    time.sleep(0.3)
print("end")
""",
    ),
    "fastprogress": _python(
        "fastprogress",
        r"""
from fastprogress.fastprogress import master_bar, progress_bar
import time
mb = master_bar(range(3))
for i in mb:
    for j in progress_bar(range(20), parent=mb): time.sleep(0.005)
    mb.write(f"Finished loop {i}.")
for i in progress_bar(range(30)): time.sleep(0.01)
print("end")
""",
    ),
    "joblib": _python(
        "joblib",
        r"""
import json, time
from joblib import Parallel, delayed
print(json.dumps({"epoch": 1, "loss": 0.5}), flush=True)
for verbose in (5, 11, 51):
    Parallel(n_jobs=2, backend="threading", verbose=verbose)(delayed(time.sleep)(0.01) for _ in range(40))
print(json.dumps({"epoch": 2, "loss": 0.25}))
""",
    ),
    "loguru": _python(
        "loguru",
        r"""
import json, sys
from loguru import logger
logger.remove()
logger.add(sys.stdout, colorize=True, format="<level>{level: <8}</level> | <cyan>{function}</cyan>:{line} - {message}", backtrace=False, diagnose=False)
def train():
    for step in range(5):
        logger.info("step {} loss={:.3f}", step, 1 / (step + 1))
        print(json.dumps({"step": step, "loss": round(1 / (step + 1), 3)}), flush=True)
    logger.success("trained")
    logger.warning("the last batch was small")
train()
try: 1 / 0
except ZeroDivisionError: logger.opt(exception=True).error("no score")
""",
    ),
    "structlog": _python(
        "structlog",
        r"""
import json, structlog
structlog.configure(processors=[structlog.processors.add_log_level, structlog.dev.ConsoleRenderer(colors=True, sort_keys=True)])
log = structlog.get_logger()
for epoch in range(4):
    log.info("epoch done", epoch=epoch, loss=round(1 / (epoch + 1), 3), files=["a", "b"])
    print(json.dumps({"epoch": epoch, "loss": round(1 / (epoch + 1), 3)}), flush=True)
log.error("no checkpoint", reason="the disk is full", step=12)
structlog.configure(processors=[structlog.processors.add_log_level, structlog.processors.JSONRenderer()])
structlog.get_logger().info("as json", epoch=4)
""",
    ),
    "hyperopt": _python(
        "hyperopt",
        r"""
import json, numpy, time
from hyperopt import fmin, hp, tpe
def objective(x):
    time.sleep(0.02)
    return (x - 2) ** 2
best = fmin(objective, hp.uniform("x", -10, 10), algo=tpe.suggest, max_evals=25, rstate=numpy.random.default_rng(1))
print(json.dumps({"x": round(float(best["x"]), 4)}))
""",
    ),
    "bayesian-optimization": _python(
        "bayesian-optimization",
        r"""
import json, warnings
warnings.simplefilter("ignore")
from bayes_opt import BayesianOptimization
search = BayesianOptimization(lambda x, y: -x ** 2 - (y - 1) ** 2 + 1, {"x": (2, 4), "y": (-3, 3)}, random_state=1, verbose=2)
search.maximize(init_points=3, n_iter=6)
print(json.dumps({"target": round(float(search.max["target"]), 4)}))
""",
    ),
    "lightgbm-json": _python(
        "lightgbm",
        r"""
import json, lightgbm, numpy
rng = numpy.random.default_rng(1)
x = rng.random((500, 8)); y = x[:, 0] + 0.1 * rng.random(500)
def tell(env):
    if env.iteration % 5 == 0: print(json.dumps({"step": env.iteration, "l2": env.evaluation_result_list[0][2]}), flush=True)
train = lightgbm.Dataset(x[:400], y[:400]); valid = lightgbm.Dataset(x[400:], y[400:], reference=train)
lightgbm.train({"objective": "regression", "num_threads": 1, "deterministic": True}, train, 30, valid_sets=[valid], callbacks=[tell, lightgbm.log_evaluation(5), lightgbm.early_stopping(5)])
""",
    ),
    "optuna": _python(
        "optuna",
        r"""
import json, optuna, time
def objective(trial):
    x = trial.suggest_float("x", -10, 10)
    time.sleep(0.02)
    if trial.number == 3: raise optuna.TrialPruned()
    print(json.dumps({"trial": trial.number, "value": (x - 2) ** 2}), flush=True)
    return (x - 2) ** 2
for bar in (False, True):
    study = optuna.create_study(study_name="some", sampler=optuna.samplers.RandomSampler(seed=1))
    study.optimize(objective, n_trials=12, show_progress_bar=bar)
""",
    ),
    "scikit-learn-json": _python(
        "scikit-learn",
        r"""
import json, numpy
from sklearn.ensemble import GradientBoostingRegressor, RandomForestRegressor
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
rng = numpy.random.default_rng(1)
x = rng.random((300, 8)); y = x[:, 0] + 0.1 * rng.random(300)
RandomForestRegressor(40, verbose=2, random_state=1).fit(x, y)
GradientBoostingRegressor(n_estimators=30, verbose=1, random_state=1).fit(x, y)
print(json.dumps({"model": "mlp", "hidden": 16}), flush=True)
MLPRegressor(hidden_layer_sizes=(16,), max_iter=300, tol=1e-3, verbose=True, random_state=1).fit(x, y)
search = GridSearchCV(RandomForestRegressor(random_state=1), {"n_estimators": [2, 5], "max_depth": [2, 4]}, cv=3, verbose=3).fit(x, y)
make_pipeline(StandardScaler(), RandomForestRegressor(5, random_state=1), verbose=True).fit(x, y)
print(json.dumps({"score": round(float(search.best_score_), 4)}))
""",
    ),
    "uv": _command(
        "uv",
        "uv venv -q new && uv pip install --python new/bin/python --no-cache numpy rich tqdm; uv pip install --python new/bin/python no-such-package-here-at-all",
        fails=True,
    ),
    "xgboost-json": _python(
        "xgboost-cpu",
        r"""
import json, numpy, xgboost
rng = numpy.random.default_rng(1)
x = rng.random((500, 8)); y = x[:, 0] + 0.1 * rng.random(500)
train, valid = xgboost.DMatrix(x[:400], y[:400]), xgboost.DMatrix(x[400:], y[400:])
class Tell(xgboost.callback.TrainingCallback):
    def after_iteration(self, model, epoch, evals_log):
        print(json.dumps({"epoch": epoch, "rmse": evals_log["valid"]["rmse"][-1]}), flush=True)
        return False
xgboost.train({"nthread": 1}, train, 20, evals=[(train, "train"), (valid, "valid")], verbose_eval=2, callbacks=[Tell()])
""",
    ),
    "keras": _python(
        "keras",
        r"""
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras, numpy
model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(16, activation="relu"), keras.layers.Dense(1)])
model.summary()
model.compile("adam", "mse", metrics=["mae"])
x, y = numpy.random.rand(2000, 8), numpy.random.rand(2000)
model.fit(x, y, epochs=3, validation_split=0.1, batch_size=16)
model.evaluate(x, y)
model.predict(x[:100])
model.fit(x, y, epochs=2, verbose=2)
bar = keras.utils.Progbar(None)
for i in range(20): bar.update(i + 1)
bar.update(20, finalize=True)
""",
        columns=120,
        rows=40,
    ),
    "xgboost": _python(
        "xgboost",
        _DATA
        + r"""
import xgboost
train, valid = xgboost.DMatrix(x[:300], y[:300]), xgboost.DMatrix(x[300:], y[300:])
settings = {"objective": "binary:logistic", "eval_metric": ["logloss", "auc"]}
xgboost.train(settings, train, 6, [(train, "train"), (valid, "valid")])
xgboost.cv({"objective": "binary:logistic"}, train, 3, nfold=3, metrics="logloss", verbose_eval=True)
xgboost.train(settings, train, 30, [(valid, "valid")], early_stopping_rounds=2, verbose_eval=5)
""",
    ),
    "lightgbm": _python(
        "lightgbm",
        _DATA
        + r"""
import lightgbm
train = lightgbm.Dataset(x[:300], y[:300])
valid = lightgbm.Dataset(x[300:], y[300:], reference=train)
settings = {"objective": "binary", "metric": ["binary_logloss", "auc"], "num_leaves": 7}
log = lightgbm.log_evaluation
lightgbm.train(settings, train, 30, valid_sets=[train, valid], valid_names=["train", "valid"],
               callbacks=[log(5), lightgbm.early_stopping(3)])
quiet = {**settings, "metric": "l2", "verbosity": -1}
lightgbm.train(quiet, train, 10, valid_sets=[valid], callbacks=[log(5)])
lightgbm.cv(quiet, lightgbm.Dataset(x, y), 4, nfold=3, callbacks=[log(2, show_stdv=True)])
""",
    ),
    "catboost": _python(
        "catboost",
        _DATA
        + r"""
from catboost import CatBoostClassifier
CatBoostClassifier(iterations=20, verbose=5, allow_writing_files=False, thread_count=1).fit(
    x[:300], y[:300], eval_set=(x[300:], y[300:]))
CatBoostClassifier(iterations=4, allow_writing_files=False, thread_count=1).fit(x, y)
""",
    ),
    "scikit-learn": _python(
        "scikit-learn",
        _DATA
        + r"""
from sklearn.cluster import KMeans
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier
from sklearn.linear_model import SGDClassifier
from sklearn.neural_network import MLPClassifier
GradientBoostingClassifier(n_estimators=12, verbose=1).fit(x, y)
GradientBoostingClassifier(n_estimators=4, verbose=2, subsample=0.5).fit(x, y)
HistGradientBoostingClassifier(max_iter=3, verbose=2, early_stopping=True).fit(x, y)
MLPClassifier((4,), max_iter=4, verbose=True, early_stopping=True).fit(x, y)
SGDClassifier(max_iter=3, verbose=1, tol=None).fit(x, y)
KMeans(3, n_init=1, verbose=1, max_iter=4).fit(x)
""",
    ),
    "transformers": _python(
        "transformers",
        r"""
import torch
from transformers import Trainer, TrainingArguments, logging
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
    def forward(self, x, labels):
        logits = self.layer(x)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}
class Data(torch.utils.data.Dataset):
    def __len__(self): return 64
    def __getitem__(self, n):
        x = torch.randn(4, generator=torch.Generator().manual_seed(n))
        return {"x": x, "labels": int(x[0] > 0)}
settings = TrainingArguments("x", num_train_epochs=2, logging_steps=4, eval_strategy="epoch", report_to=[],
                             save_strategy="no", disable_tqdm=True, use_cpu=True)
Trainer(Model(), settings, train_dataset=Data(), eval_dataset=Data()).train()
""",
    ),
    "keras-1-like": _python(
        "tqdm",
        r"""
import sys, time
for epoch in range(2):
    print("Epoch %d/2" % (epoch + 1)); total = 0
    for i in range(1, 31):
        sys.stdout.write("\b" * total + "\r")
        text = "%2d/30 [%s>%s] - ETA: %ds - loss: %.4f" % (i, "=" * (i - 1), "." * (30 - i), (30 - i) % 12, 1 / i)
        text += " " * max(0, total - len(text)); total = len(text)
        sys.stdout.write(text); sys.stdout.flush(); time.sleep(0.005)
    sys.stdout.write("\n")
for i in range(101): sys.stdout.write("\b" * 4 * (i > 0) + "%3d%%" % i); sys.stdout.flush()
print()
""",
    ),
    "alive-progress": _python(
        "alive-progress",
        r"""
from alive_progress import alive_bar, alive_it
import logging, sys, time
logging.basicConfig(stream=sys.stdout)
with alive_bar(60, title="Alive") as bar:
    for i in range(60):
        time.sleep(0.01); bar()
        if i % 20 == 10: print("printed", i)
        if i == 30: logging.warning("logged")
with alive_bar(spinner="fish", unknown="waves") as bar:
    for i in range(40): time.sleep(0.01); bar()
with alive_bar(30, dual_line=True, title="two lines") as bar:
    for i in range(30): time.sleep(0.01); bar.text = "at %d" % i; bar()
""",
    ),
    "enlighten": _python(
        "enlighten",
        r"""
import enlighten, time
manager = enlighten.get_manager()
status = manager.status_bar("Status of it", color="white_on_blue", justify=enlighten.Justify.CENTER)
bars = [manager.counter(total=20, desc="bar %d" % n, unit="ticks") for n in range(3)]
for i in range(20):
    print("line", i)
    for bar in bars: bar.update(); time.sleep(0.003)
bars[1].close(clear=True)
for i in range(20): print("later", i)
manager.stop()
print("end")
""",
        columns=100,
        rows=24,
    ),
    "enlighten-taller-than-screen": _python(
        "enlighten",
        r"""
import enlighten, time
manager = enlighten.get_manager()
bars = [manager.counter(total=20, desc="bar %d" % n, leave=n % 2 == 0) for n in range(4)]
for i in range(20):
    for line in range(3): print("line", i, line)
    for bar in bars: bar.update()
manager.stop()
print("end")
""",
        columns=60,
        rows=10,
    ),
    "blessed": _python(
        "blessed",
        r"""
import blessed, time
term = blessed.Terminal()
print(term.bold("before"))
with term.location(0, term.height - 1): print(term.reverse("status"), end="")
for i in range(10):
    print(term.move_x(0) + term.clear_eol + "at %d" % i, end="", flush=True); time.sleep(0.01)
print()
with term.fullscreen(), term.hidden_cursor(): print(term.home + term.clear + "left out"); time.sleep(0.1)
print(term.move_up + term.center("centre"))
with term.scroll_region(2, 5):
    for i in range(9): print(term.move_xy(0, 5) + "region %d" % i, end=""); print()
print(term.move_xy(0, term.height - 1) + "end")
""",
        columns=80,
        rows=24,
    ),
    "dask": _python(
        "dask",
        r"""
from dask.diagnostics import ProgressBar
import dask, time
with ProgressBar(): dask.compute(*[dask.delayed(time.sleep)(0.02) for _ in range(30)])
""",
    ),
    "tqdm-killed": _python(
        "tqdm",
        r"""
from tqdm import tqdm
import time
bar = tqdm(total=10, desc="outer"); inner = tqdm(total=10, desc="inner", leave=False)
for i in range(5): bar.update(); inner.update(2); time.sleep(0.4)
print("\nprinted into the bars")
import os; os._exit(0)
""",
    ),
    "conda-like": _python(
        "tqdm",
        r"""
from tqdm import tqdm
import time, threading
w = print
w("Channels:\n - conda-forge\nPlatform: linux-64")
def spin(text):
    import sys
    sys.stdout.write(text + ": ")
    for c in "/-\\|" * 3: sys.stdout.write(c + "\b"); sys.stdout.flush(); time.sleep(0.02)
    sys.stdout.write(" \bdone\n")
spin("Collecting package metadata (repodata.json)"); spin("Solving environment")
w("\nDownloading and Extracting Packages:")
names = ["numpy-2.1.0", "python-3.11.9", "openssl-3.3.1", "libblas-3.9.0"]
bars = [tqdm(desc="%-20s | %-9s | " % (n, "1.2 MB"), bar_format="{desc}{bar:40} | {percentage:3.0f}% ", ascii=" ##########"[:3], total=1, position=i, leave=False) for i, n in enumerate(names)]
for step in range(5):
    for bar in bars: bar.n = (step + 1) / 5; bar.refresh()
    time.sleep(0.2)
for bar in bars: bar.close()
w()
spin("Preparing transaction"); spin("Verifying transaction"); spin("Executing transaction")
""",
    ),
    "pip-install": _command(
        "pip",
        "python -m venv --without-pip new && python -m pip --python new/bin/python install --no-cache-dir --index-url https://pypi.org/simple numpy rich",
        version="python -m pip --version | cut -d' ' -f1,2",
    ),
    "pip-download": _command(
        "pip",
        "python -m pip download --no-cache-dir --no-deps --only-binary :all: -d to matplotlib; python -m pip download --no-deps no-such-package-here-at-all",
        version="python -m pip --version | cut -d' ' -f1,2",
        fails=True,
    ),
    "npm": _command("npm", "npm install --no-fund express chalk", "npm init -y"),
    "pnpm": _command("pnpm", "pnpm add express chalk", "npm init -y"),
    "wget": _command(
        "wget",
        _SERVED.format(
            "wget -O file http://127.0.0.1:8765/some; wget --progress=dot:giga -O file http://127.0.0.1:8765/some"
        ),
        _SERVER,
    ),
    "wget-80": _command(
        "wget",
        _SERVED.format(
            "wget -q --show-progress -O some-long-name-of-a-file-that-scrolls-by-in-the-bar http://127.0.0.1:8765/some"
        ),
        _SERVER,
        columns=80,
        rows=24,
    ),
    "curl": _command(
        "curl",
        _SERVED.format(
            "curl http://127.0.0.1:8765/some -o file; curl -# http://127.0.0.1:8765/some -o file"
        ),
        _SERVER,
    ),
    "curl-parallel": _command(
        "curl",
        _SERVED.format("curl -Z http://127.0.0.1:8765/a -o a http://127.0.0.1:8765/b -o b"),
        _SERVER,
    ),
    "aria2": _command(
        "aria2c",
        _SERVED.format(
            "aria2c --summary-interval=1 http://127.0.0.1:8765/a http://127.0.0.1:8765/b -Z"
        ),
        _SERVER,
    ),
    "git-clone": _command(
        "git",
        "git clone --progress file:///tmp/x/from to; cd to && git log --color --stat | head -20 | cat; git gc --prune=now",
        "git init -q from && cd from && seq 99999 | split -l 20 - && git add . && git -c user.name=n -c user.email=e@example.org commit -qm one",
    ),
    "dd": _command(
        "dd", "dd if=/dev/zero bs=64k count=20000 status=progress | (sleep 2.5; cat) >/dev/null"
    ),
    "pv": _command(
        "pv",
        "head -c 3000000 /dev/zero | pv -L 2m -s 3000000 >/dev/null; head -c 1000000 /dev/zero | pv -L 1m -cN one | pv -cN two >/dev/null",
    ),
    "rsync": _command(
        "rsync",
        "rsync -a --progress from/ to/; rsync -a --info=progress2 from/ to2/; rsync -av from/ to/",
        "mkdir from; for n in 1 2 3; do head -c 9000000 /dev/zero >from/file$n; done",
    ),
    "cargo": _command(
        "cargo",
        "cd some; cargo build --offline; cargo build --offline; cargo test --offline",
        "cargo new -q some; cd some; for n in 1 2 3 4 5 6; do cargo new -q --lib dep$n; printf \"[dependencies.dep$n]\\npath = 'dep$n'\\n\" >>deps; done; sed -i '/workspace/,$d' Cargo.toml; sed -i '/^.dependencies/d' Cargo.toml; cat deps >>Cargo.toml; echo 'fn main() { let unused = 1; }' >src/main.rs",
    ),
    "cargo-install": _command(
        "cargo",
        "cd some; CARGO_HOME=/tmp/x/c; export CARGO_HOME; cargo add hex itoa cfg-if; cargo fetch; cargo build",
        "cargo new -q some",
        version="cargo --version",
    ),
    "ninja": _command("ninja", "cmake -G Ninja . && ninja; ninja -v", _CMAKE),
    "cmake-make": _command("cmake", "cmake . && make -j2 && make clean && make", _CMAKE),
    "make": _command(
        "make",
        "make -j4; make -j2 -k fail",
        "printf 'all: %s\\nt%%:\\n\\t@sleep 0.0$* ; printf \"\\\\033[32mt$*\\\\033[0m\\\\n\"\\nfail: none\\n\\t false\\nnone:\\n\\tfalse\\n' \"$(seq -f t%g -s ' ' 20)\" >Makefile",
        fails=True,
    ),
    "apt": _command(
        "apt",
        "mkdir -p s/lists/partial a/partial; apt -o Dir::Ignore-Files-Silently::=. -o Debug::NoLocking=1 -o Dir::Cache::archives=/tmp/x/a/ -o APT::Color=1 --no-install-recommends -y -d install sl bsdgames; apt -o Dir::Ignore-Files-Silently::=. list --installed 2>/dev/null | head -5",
    ),
    "apt-fancy": _command(
        "apt",
        "apt -o Dir::Ignore-Files-Silently::=. -o Dpkg::Progress-Fancy=1 -y install sl cowsay; apt -o Dir::Ignore-Files-Silently::=. -o Dpkg::Progress-Fancy=1 -y purge sl cowsay",
        "apt-get -y remove sl cowsay",
    ),
    "apt-fancy-24-rows": _command(
        "apt",
        "apt -o Dir::Ignore-Files-Silently::=. -o Dpkg::Progress-Fancy=1 -y install sl cowsay; apt -o Dir::Ignore-Files-Silently::=. -o Dpkg::Progress-Fancy=1 -y purge sl cowsay",
        "apt-get -y remove sl cowsay",
        columns=80,
        rows=24,
    ),
    "pytest": _command(
        "pytest",
        "python -m pytest -v --no-header --color=yes -p no:cacheprovider test_some.py",
        _TESTS,
        version="python -m pytest --version",
        fails=True,
    ),
    "gcc": _command(
        "gcc",
        "gcc -fdiagnostics-color=always -fdiagnostics-urls=always -Wall -Wextra -c a.c -o a.o; grep --color=always -n int a.c; ls --color=always",
        _C,
    ),
    "ffmpeg": _command(
        "ffmpeg",
        "ffmpeg -hide_banner -f lavfi -i testsrc=size=320x240:rate=25 -t 40 -c:v mpeg4 -y out.avi </dev/null; ffmpeg -hide_banner -re -t 2 -i out.avi -f null - </dev/null",
        version="ffmpeg -version | cut -d' ' -f1-3",
    ),
    "ffmpeg-80": _command(
        "ffmpeg",
        "ffmpeg -hide_banner -f lavfi -i testsrc=size=640x480:rate=25 -t 20 -c:v mpeg4 -y out.avi </dev/null",
        version="ffmpeg -version | cut -d' ' -f1-3",
        columns=60,
        rows=20,
    ),
    "less": _command(
        "less",
        "echo before; less -R numbers; echo after",
        "seq 500 >numbers",
        keys=[(0.5, b" "), (0.8, b"j"), (1.0, b"/99\r"), (1.3, b"G"), (1.6, b"q")],
    ),
    "less-no-init": _command(
        "less",
        "echo before; less -X numbers; echo after",
        "seq 500 >numbers",
        keys=[(0.5, b" "), (0.8, b"j"), (1.0, b"/99\r"), (1.3, b"k"), (1.6, b"q")],
        columns=80,
        rows=24,
    ),
    "less-quits": _command("less", "echo before; less -FRX numbers; echo after", "seq 20 >numbers"),
    "vim": _command(
        "vim",
        "echo before; vim.tiny -u NONE file; echo after",
        "seq 500 >file",
        version="vim.tiny --version",
        keys=[(1.0, b"dd"), (1.3, b"itext\x1b"), (1.6, b"G"), (2.0, b":wq\r")],
    ),
    "vim-big": _command(
        "vim",
        "echo before; vim -u NONE -c 'syntax on' file.py; echo after",
        "printf 'import os\\nprint(1)\\n' >file.py",
        keys=[(1.0, b"dd"), (1.3, b"itext\x1b"), (2.0, b":wq\r"), (3.0, b":wq\r")],
    ),
    "nano": _command(
        "nano",
        "echo before; nano file; echo after",
        "seq 50 >file",
        keys=[(0.7, b"text"), (1.2, b"\x18"), (1.6, b"n")],
    ),
    "htop": _command(
        "htop",
        "echo before; htop -d 5; echo after",
        "echo hide_userland_threads=1 >x",
        keys=[(1.6, b"q")],
    ),
    "top": _command(
        "top",
        "echo before; top -d 1 -n 2; echo between; top -b -n 1 | head -3; echo after",
        version="top -V",
    ),
    "watch": _command(
        "watch", "echo before; timeout --foreground 2 watch -n 0.5 echo seen; echo after"
    ),
    "dialog": _command(
        "dialog",
        "echo before; dialog --yesno 'Go on?' 8 40; echo 50 | dialog --gauge 'Please wait' 8 40; echo after",
        keys=[(0.8, b"\r")],
    ),
    "dialog-keep-tite": _command(
        "dialog",
        "echo before; seq 0 20 100 | dialog --keep-tite --gauge 'Please wait' 8 40; echo after",
        columns=80,
        rows=24,
    ),
    "whiptail": _command(
        "whiptail",
        "echo before; (for n in 10 50 100; do echo $n; sleep 0.1; done) | whiptail --gauge 'Please wait' 8 40 0; echo after",
        columns=80,
        rows=24,
    ),
    "mc": _command(
        "mc",
        "echo before; mc -u; echo after",
        version="mc --version | head -1",
        keys=[(1.5, b"\x1b0"), (2.2, b"\r")],
    ),
    "ansible": _command(
        "ansible-playbook",
        "ANSIBLE_FORCE_COLOR=1 ansible-playbook -e ansible_python_interpreter=/usr/bin/python3 -i localhost, -c local play.yml",
        'printf -- \'- hosts: all\\n  gather_facts: false\\n  tasks:\\n    - name: Say\\n      debug: msg="hello"\\n    - command: echo {{ item }}\\n      loop: [1, 2, 3]\\n    - command: "false"\\n      ignore_errors: true\\n    - pause: seconds=2\\n\' >play.yml',
        fails=True,
    ),
    "r": _command(
        "Rscript",
        "Rscript program.R",
        "cat >program.R <<'EOF'\nb <- txtProgressBar(style=3, max=30)\nfor (i in 1:30) { Sys.sleep(0.01); setTxtProgressBar(b, i) }\nclose(b)\nb <- txtProgressBar(style=1, max=30)\nfor (i in 1:30) setTxtProgressBar(b, i)\nclose(b)\nlibrary(progress)\np <- progress_bar$new(format='  downloading [:bar] :percent eta: :eta', total=40, clear=FALSE, width=60, show_after=0)\nfor (i in 1:40) { p$tick(); Sys.sleep(0.02); if (i == 20) p$message('half way') }\np <- progress_bar$new(total=20, show_after=0)\nfor (i in 1:20) { p$tick(); Sys.sleep(0.02) }\nlibrary(cli)\noptions(cli.progress_show_after=0)\ncli_h1('Title'); cli_alert_success('did {.pkg it}'); cli_ul(c('a', 'b'))\nf <- function() { cli_progress_bar('Cleaning', total=50); for (i in 1:50) { Sys.sleep(0.02); cli_progress_update() }; cli_progress_done() }\nf()\ncli_progress_step('Step one'); Sys.sleep(0.3); cli_progress_step('Step two'); Sys.sleep(0.3); cli_progress_done()\ncat('end\\n')\nEOF",
    ),
    "go-mpb": _go("github.com/vbauerster/mpb/v8", "mpb"),
    "go-progressbar": _go("github.com/schollz/progressbar/v3", "schollz"),
    "go-pb": _go("github.com/cheggaaa/pb/v3", "pb"),
    "go-pterm": _go("github.com/pterm/pterm", "pterm"),
    "docker-layers": _go("github.com/docker/docker", "docker"),
    "rust-indicatif": _command(
        "indicatif",
        "bars/target/debug/bars",
        _RUST,
        version="cd bars; cargo tree --depth 1 | sed -n 's/.*indicatif //p'",
    ),
    "node-ora": _node(
        "ora",
        _SLEEP
        + """
import ora from "ora";
const spinner = ora("Loading").start(); await sleep(400);
spinner.text = "Loading more, with a text that is so long that it wraps on a narrow terminal".repeat(3); await sleep(300);
spinner.text = "two\\nlines"; await sleep(300); spinner.succeed("Loaded");
ora("second").start().fail("failed"); const third = ora("third").start(); await sleep(200); third.stop();
""",
    ),
    "node-cli-progress": _node(
        "cli-progress",
        _SLEEP
        + """
import progress from "cli-progress";
const bar = new progress.SingleBar({}, progress.Presets.shades_classic); bar.start(50, 0);
for (let i = 0; i <= 50; i++) { bar.update(i); await sleep(10); } bar.stop();
const many = new progress.MultiBar({ hideCursor: true, format: " {bar} | {name} | {value}/{total}" });
const bars = ["a", "b", "c"].map((name) => many.create(20, 0, { name }));
for (let i = 0; i <= 20; i++) { bars.forEach((b) => b.update(i)); if (i % 7 == 0) many.log("at " + i + "\\n"); await sleep(40); } many.stop();
""",
    ),
    "node-listr2": _node(
        "listr2",
        _SLEEP
        + """
import { Listr } from "listr2";
await new Listr([
  { title: "One", task: async (_, task) => { for (let i = 0; i < 5; i++) { task.output = "output " + i; await sleep(100); } } },
  { title: "Two", task: (_, task) => task.newListr([{ title: "Two a", task: () => sleep(300) }, { title: "Two b", skip: true, task: () => {} }], { concurrent: true }) },
  { title: "Three", task: async () => { await sleep(200); } },
], { concurrent: true }).run();
""",
    ),
    "node-ink": _node(
        "ink",
        _SLEEP
        + """
import React from "react"; import { render, Text, Box, Static } from "ink";
const e = React.createElement;
const App = ({ n }) => e(React.Fragment, null, e(Static, { items: [...Array(n).keys()] }, (i) => e(Text, { key: i, color: "green" }, "done " + i)), e(Box, { borderStyle: "round" }, e(Text, null, "at " + n)), e(Text, null, "x".repeat(n * 30)));
const app = render(e(App, { n: 0 })); for (let n = 1; n < 12; n++) { app.rerender(e(App, { n })); await sleep(60); } app.unmount();
""",
        "react",
    ),
    "maven": _command(
        "mvn",
        "mvn -B -o validate; mvn -o compile",
        "printf '<project><modelVersion>4.0.0</modelVersion><groupId>g</groupId><artifactId>a</artifactId><version>1</version><packaging>pom</packaging></project>' >pom.xml",
        version="mvn -v -B",
        fails=True,
    ),
    "gdb": _command(
        "gdb",
        "gdb -q -nx -ex 'break main' -ex run -ex 'info locals' -ex bt -ex kill -ex quit --batch ./a; echo 'int' | gdb -q -nx -ex quit",
        "printf 'int main(void) { int n = 1; return n; }\\n' >a.c; gcc -g a.c -o a",
        fails=True,
    ),
    "parallel": _command(
        "parallel",
        "seq 12 | parallel --will-cite --bar -j2 'sleep 0.05; echo {}'; seq 5 | parallel --will-cite --progress -j2 sleep 0.1",
        version="parallel --version | head -1",
    ),
    "shell-readline": _command(
        "bash",
        "bash --norc -i",
        version="bash --version | head -1",
        keys=[
            (0.5, b"echo one two three\r"),
            (0.9, b"echo x\x01\x1b[C\x1b[C\x1b[C\x1b[C\x1b[Cy\r"),
            (1.3, b"\x12echo\r"),
            (
                1.7,
                b"for i in 1 2; do echo " + b"long " * 40 + b"; done\x01\x05\x7f\x7f\x7f\x7fdone\r",
            ),
            (2.3, b"exit\r"),
        ],
    ),
    "python-repl": _command(
        "python",
        "python -q",
        version=_PYTHON,
        keys=[
            (1.0, b"print('one')\r"),
            (1.5, b"[n for n in range(100)]\r"),
            (2.0, b"'x' * 300\x01y = \r"),
            (2.5, b"y\r"),
            (3.0, b"exit()\r"),
        ],
    ),
    "tput": _command(
        "tput",
        "seq 30; clear -x; tput civis; echo one; tput cup 10 5; echo two; tput sc; tput cup 0 0; tput el; echo three; tput rc; tput ed; tput rev; echo reversed; tput sgr0; tput cuu 3; tput dch 2; tput ich 4; tput il 1; tput init; echo end",
        version="tput -V",
        columns=80,
        rows=24,
    ),
    "zstd-xz": _command(
        "zstd",
        "zstd -19 -v --progress numbers -o numbers.zst; xz -v -k numbers; zstd -v -d -f numbers.zst",
        "seq 700000 >numbers",
    ),
    "tar-split-columns": _command(
        "column",
        "ls --color=always -C files; cat b | column -x; seq 200 | pr -5 -t | head -20; printf 'a\\tb\\tlonger\\n1\\t2\\t3\\n' | expand; diff --color=always -y -W 100 a b",
        "seq 30 >a; seq 3 33 >b; mkdir files; cd files; touch $(seq -f file%g.txt 90); mkdir folder; ln -s none link",
        fails=True,
    ),
    "two-streams/tqdm-print": _two_streams(
        "tqdm",
        """
import time
from tqdm import tqdm
for epoch in range(4):
    for batch in tqdm(range(20), desc=f"epoch {epoch}", mininterval=0.02):
        time.sleep(0.01)
    time.sleep(0.02)
    print(f"epoch {epoch}: loss {1 / (epoch + 1):.3f}", flush=True)
    time.sleep(0.02)
print("done")
""",
    ),
    "two-streams/tqdm-print-long-after": _two_streams(
        "tqdm",
        """
import time
from tqdm import tqdm
for epoch in range(2):
    for batch in tqdm(range(20), desc=f"epoch {epoch}", mininterval=0.02):
        time.sleep(0.01)
    for line in range(4):
        time.sleep(0.4)
        print(f"epoch {epoch}: line {line}", flush=True)
    time.sleep(0.1)
""",
    ),
    "two-streams/tqdm-nested": _two_streams(
        "tqdm",
        """
import time
from tqdm import tqdm
print("begin", flush=True)
time.sleep(0.05)
for epoch in tqdm(range(3), desc="epochs"):
    for batch in tqdm(range(10), desc=f"batches {epoch}", leave=False, mininterval=0.02):
        time.sleep(0.02)
time.sleep(0.05)
for line in range(5):
    print("after", line, flush=True)
    time.sleep(0.5)
""",
    ),
    "two-streams/tqdm-write": _two_streams(
        "tqdm",
        """
import json, sys, time
class Slow:  # or reads couldn't be told apart
    def __init__(self, stream): self.stream = stream
    def __getattr__(self, name): return getattr(self.stream, name)
    def write(self, text):
        self.stream.write(text)
        self.stream.flush()
        time.sleep(0.01)
sys.stdout, sys.stderr = Slow(sys.stdout), Slow(sys.stderr)
from tqdm import tqdm
for i in tqdm(range(30), mininterval=0.02):
    time.sleep(0.05)
    if i % 5 == 0:
        tqdm.write(json.dumps({"epoch": i, "loss": 1 / (i + 1)}))
time.sleep(0.05)
print("done")
""",
    ),
    "two-streams/tqdm-logging": _two_streams(
        "tqdm",
        """
import logging, time
from tqdm import tqdm
logging.basicConfig(format="%(levelname)s %(message)s", level="INFO")
for epoch in range(3):
    logging.info("epoch %d begins", epoch)
    time.sleep(0.05)
    print("on stdout", epoch, flush=True)
    time.sleep(0.05)
    for batch in tqdm(range(20), mininterval=0.02):
        time.sleep(0.01)
    logging.warning("epoch %d has ended", epoch)
    time.sleep(0.05)
    print("and on stdout", epoch, flush=True)
    time.sleep(0.05)
""",
    ),
    "two-streams/tqdm-no-last-line": _two_streams(
        "tqdm",
        """
import os, time
from tqdm import tqdm
print("begin", flush=True)
time.sleep(0.05)
for i in tqdm(range(20), mininterval=0.02): time.sleep(0.01)
for line in range(3):
    time.sleep(0.6)
    print("line", line, flush=True)
time.sleep(0.05)
bar = tqdm(total=10, mininterval=0)
for i in range(5):
    time.sleep(0.1)
    bar.update()
os._exit(0)
""",
    ),
    "two-streams/progressbar2": _two_streams(
        "progressbar2",
        """
import time, progressbar
for epoch in range(3):
    for batch in progressbar.progressbar(range(20), max_value=20): time.sleep(0.02)
    time.sleep(0.05)
    print("epoch", epoch, flush=True)
    time.sleep(0.05)
""",
    ),
    "two-streams/rich-progress": _two_streams(
        "rich",
        """
import time
from rich.console import Console
from rich.progress import Progress
console = Console(stderr=True)
for epoch in range(2):
    with Progress(console=console) as progress:
        tasks = [progress.add_task(f"task {n}", total=10) for n in range(3)]
        for i in range(10):
            for task in tasks: progress.update(task, advance=1)
            if i == 5: progress.console.print("[red]printed[/] above")
            time.sleep(0.03)
    time.sleep(0.05)
    for line in range(3):
        print("epoch", epoch, "line", line, flush=True)
        time.sleep(0.4)
""",
    ),
    "two-streams/alive-progress": _two_streams(
        "alive-progress",
        """
import sys, time
from alive_progress import alive_bar
for epoch in range(2):
    with alive_bar(20, file=sys.stderr, force_tty=True, enrich_print=False) as bar:
        for i in range(20):
            time.sleep(0.02)
            bar()
    time.sleep(0.05)
    print("epoch", epoch, flush=True)
    time.sleep(0.05)
""",
    ),
    "two-streams/halo": _two_streams(
        "halo",
        """
import sys, time
from halo import Halo
for step in range(3):
    spinner = Halo(text=f"step {step}", spinner="dots", stream=sys.stderr).start()
    time.sleep(0.4)
    spinner.succeed()
    time.sleep(0.05)
    print("result", step, flush=True)
    time.sleep(0.05)
""",
    ),
    "two-streams/enlighten": _two_streams(
        "enlighten",
        """
import sys, time, enlighten
manager = enlighten.get_manager(stream=sys.stderr, set_scroll=False)
counter = manager.counter(total=20, desc="counted")
for i in range(20):
    time.sleep(0.02)
    counter.update()
manager.stop()
time.sleep(0.05)
for line in range(3):
    print("line", line, flush=True)
    time.sleep(0.5)
""",
    ),
    "two-streams/dd-curl-git": _command(
        "dd",
        "for n in 1 2; do dd if=/dev/zero of=/dev/null bs=1M count=2000 status=progress; sleep 0.05; echo part $n; sleep 0.05; done; "
        "curl -o b file:///tmp/x/a; sleep 0.05; echo copied; sleep 0.05; git clone --progress file:///tmp/x/from to; sleep 0.05; echo cloned; sleep 1.2; echo end",
        "seq 200000 >a; git init -q from; cd from; seq 9999 | split -l 20; git add .; git -c user.name=n -c user.email=e commit -qm one",
        two_streams=True,
    ),
}
