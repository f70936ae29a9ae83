/* Fault points: the places where a crash would split two effects, as in logshipper/fault_points.py.
 * What is installed has none of them: only the keeper that is built for tests (`make relay-test`)
 * looks, at each of them, for a file of that name in FAULTS_FOLDER, removes it, and kills itself
 * where it was there (tests/spank/test_slurm_fault_points.py). It waits there as long as there is a file
 * of that name with `.wait` behind it. */
#ifndef LOGSHIPPER_FAULT_POINTS_H
#define LOGSHIPPER_FAULT_POINTS_H

#define ALL_FAULT_POINTS(X) \
    X(keeper_decided, "the decision is on the disk, and the task isn't told") \
    X(capture_made, "a capture's directory is complete, under a name that readers leave out") \
    X(capture_named, "it has its name, and no relay") \
    X(relay_made, "the relay has counters and journal, and there is no sidecar") \
    X(sidecar_started, "the sidecar is started, and the task isn't told that it is captured") \
    X(relay_begun, "the task is told, and the keeper isn't") \
    X(bytes_read, "bytes are in the journal, and how many isn't") \
    X(bytes_taken, "it is, and they aren't counted") \
    X(bytes_counted, "they are counted, and neither in the job's table of modes nor passed on") \
    X(bytes_intended, "it is noted where they go, and they don't yet") \
    X(bytes_written, "they are in the job's output, and nothing says so") \
    X(bytes_staged, "they are in the pipe from which the kernel moves them, and nothing says so") \
    X(bytes_moved, "the kernel has moved them to the job's output, and nothing says so") \
    X(bytes_delivered, "they are in the job's output, and the sidecar doesn't have them") \
    X(cmd_ended, "the task has ended, and the counters don't say so") \
    X(end_noted, "they do, and what is left in its terminals isn't read") \
    X(streams_drained, "it is, and slurmstepd isn't told") \
    X(end_told, "the sidecar is told, and hasn't said that all is synced")

#ifdef FAULTS_FOLDER
#define AS_NUMBER(name, meaning) FAULT_##name,
enum fault { ALL_FAULT_POINTS(AS_NUMBER) };
#undef AS_NUMBER
void fault_point_reached(enum fault number);
#define FAULT_POINT(name) fault_point_reached(FAULT_##name)
#else
#define FAULT_POINT(name) ((void)0)
#endif

#endif
