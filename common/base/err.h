/* One status type. The function that first knows it is an error writes the text;
 * callers may prefix it; whoever stops passing it on logs it, once. */
#ifndef COMMON_BASE_ERR_H
#define COMMON_BASE_ERR_H
#include "common/base/attr.h"

/* Expanded once for the enum and once for the names, so the two cannot drift. */
#define STATUS_MAP(X)                                                                    \
	X(OK, "ok")                                                                      \
	X(AGAIN, "no progress possible now, call again when woken")                      \
	X(INVALID, "the peer, the file or the caller broke the format")                  \
	X(LIMIT, "a configured bound was reached, a pool included")                      \
	X(NOMEM, "the system has no memory")                                             \
	X(IO, "the operating system refused")                                            \
	X(PEER, "the other process is gone or speaks another version")                   \
	X(DEVICE, "CUDA or NCCL failed, or a kernel failed its check")                   \
	X(CANCELLED, "the request was withdrawn")

typedef enum status {
#define X(name, text) ST_##name,
	STATUS_MAP(X)
#undef X
		ST__COUNT
} status;

struct err {
	status code;
	int line;
	const char *file;
	char text[400]; /* room for a path of 300 bytes and what is wrong with it */
};

#ifdef __cplusplus
extern "C" {
#endif
const char *status_name(status code);
status err_set_at(struct err *err, const char *file, int line, status code,
	const char *fmt, ...) PRINTF_LIKE(5, 6);
/* Prefix what the caller was doing ("model DIR: ..."); the code stays. */
status err_wrap(struct err *err, const char *fmt, ...) PRINTF_LIKE(2, 3);
#ifdef __cplusplus
}
#endif

#define err_set(err, code, ...) err_set_at((err), __FILE__, __LINE__, (code), __VA_ARGS__)

#endif
