/* logshipper-identity.so, a SPANK plugin of its own that need not be installed: at a job's prolog
 * it records what Slurm itself says of the job (job_record.h). Without it account, partition and
 * the number of restarts of `srun` steps are those of the environment, which a user may forge. It
 * is apart because for its sake slurmd starts a process for each job on each node before the job
 * begins, which takes some milliseconds.
 *
 * Like the other one it never fails: a prolog that fails takes the node out of service. */

#include "decision.h"
#include "job_record.h"
#include "jobs_folder.h"
#include "settings.h"
#include "wire.h"

#include <errno.h>
#include <slurm/slurm.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT extern const char plugin_name[], plugin_type[];
EXPORT extern const unsigned int plugin_version, spank_plugin_version;
EXPORT spank_f slurm_spank_job_prolog;

SPANK_PLUGIN(logshipper_identity, 1)

static void take(char *value, size_t size, const char *name)
{
    const char *told = getenv(name);
    snprintf(value, size, "%s", told ? told : "");
}

/* In a process of slurmd's, as root, before anything of the job runs on this node. Of its
 * environment only names that begin with SPANK_ are the user's. */
int slurm_spank_job_prolog(spank_t spank, int argc, char **argv)
{
    struct settings settings;
    struct wire_step step = {0};
    uid_t uid = 0;
    char why[512];
    long restarts = job_restarts();
    if (spank_get_item(spank, S_JOB_ID, &step.job_id) != ESPANK_SUCCESS ||
        spank_get_item(spank, S_JOB_UID, &uid) != ESPANK_SUCCESS)
        return ESPANK_SUCCESS;
    step.uid = uid;
    if (settings_parse(&settings, argc, argv, why, sizeof why)) {
        slurm_info("logshipper-identity: %s", why);
        return ESPANK_SUCCESS;
    }
    int spool = spool_open(settings.spool, why, sizeof why);
    if (spool < 0) {
        slurm_info("logshipper-identity: %s", why);
        return ESPANK_SUCCESS;
    }
    step.restarts = restarts > 0 ? (uint32_t)restarts : 0;
    take(step.account, sizeof step.account, "SLURM_JOB_ACCOUNT");
    take(step.partition, sizeof step.partition, "SLURM_JOB_PARTITION");
    jobs_after_boot(spool); /* before the first step does, which would take this for one of an earlier boot's */
    if (job_record_write(spool, &step, restarts >= 0, true))
        slurm_info("logshipper-identity: job %u can't be recorded in %s/.jobs: %s", step.job_id, settings.spool,
                   strerror(errno));
    close(spool);
    return ESPANK_SUCCESS;
}
