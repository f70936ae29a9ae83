/* The modes of a job's captures on this node: separate captures of one job start no wider than the narrowest of them
 * (R16). A file that the job's sidecars share; Python reads and writes it (logshipper/slurm_sidecar.py). */
#ifndef LOGSHIPPER_MODES_H
#define LOGSHIPPER_MODES_H

#include "wire.h"

/* As root: opens it (made where it is missing, the job's user's own) for reading and appending. Returns an fd or -1. */
int modes_open(int spool, const struct wire_step *step);

#endif
