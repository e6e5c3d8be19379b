/* Writing JSON by hand: the two kinds of value that need care. */
#ifndef ROUTER_PUT_JSON_H
#define ROUTER_PUT_JSON_H
#include "common/base/bytes.h"

/* A JSON string with its quotes; text is valid UTF-8. Control characters, quote,
 * backslash, U+007F, U+2028 and U+2029 are escaped; all else is copied. */
void put_json_string(struct sink *out, struct bytes text);
/* The same of bytes that need not be text: what is no character shows as U+FFFD, one for
 * each maximal part. A token can hold part of a character. */
void put_json_bytes(struct sink *out, struct bytes piece);
/* A JSON number; NaN and infinities become null. */
void put_json_f64(struct sink *out, double v);

#endif
