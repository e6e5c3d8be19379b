/* Keys that clients show: a file with one a line, read at start and whenever it is asked
 * for. Knows no HTTP but the form of the two headers that carry a key. */
#ifndef ROUTER_KEYS_H
#define ROUTER_KEYS_H
#include "common/base/err.h"
#include <stdbool.h>
#include <stdint.h>

#define KEYS_MAX      256u
#define KEY_BYTES_MAX 128u /* with the zeros behind a key */

/* Zeroed: there are none. */
struct keys {
	uint32_t n;
	char key[KEYS_MAX][KEY_BYTES_MAX];
};

/* Replaces all keys, or leaves them as they are. Empty lines and those that begin with
 * '#' are passed over. ST_INVALID: no key, or a line that is none; errors name lines and
 * never hold what stands there. */
MUST_CHECK status keys_read(struct keys *k, const char *path, struct err *err);
/* Whether one of them is shown: as "Bearer KEY", or as it is. Either may be NULL. Takes
 * the same time for every text of a length. */
bool keys_allow(const struct keys *k, const char *authorization, const char *plain);

#endif
