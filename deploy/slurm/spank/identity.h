/* identity.json: whose a capture is. */
#ifndef LOGSHIPPER_IDENTITY_H
#define LOGSHIPPER_IDENTITY_H

#include "wire.h"

#include <stddef.h>

/* Of a step: "batch", "interactive", its number. */
void step_name(char *name, size_t size, uint32_t step_id);

/* The whole file. What can't be printed or isn't UTF-8 becomes U+FFFD. limit_secs: of the job's
 * time, 0 where that isn't known. Returns its size, or 0 where `size` is too little. */
size_t identity_write(char *text, size_t size, const char *cluster, const char *host, const char *user,
                      const struct wire_step *step, uint32_t task, uint32_t limit_secs);

#endif
