/* The runtime directory: where processes of one host find each other. It belongs to
 * one user and nobody else may enter it, which is what protects its sockets. */
#ifndef COMMON_LOOP_RUNTIME_H
#define COMMON_LOOP_RUNTIME_H
#include "common/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* sizeof(sun_path): paths are at most 107 bytes and a zero. */
#define RUNTIME_PATH_BYTES    108
/* Of the directory: with the link of a worker whose id has 8 bytes ("/ID.", 16 digits,
 * ".link") a path is full. One limit, by which every program, the launcher too, refuses
 * the same directories; a longer id may still not fit into one. */
#define RUNTIME_DIR_BYTES_MAX (RUNTIME_PATH_BYTES - 1 - (1 + 8 + 1 + 16 + 5))

struct runtime {
	char dir[RUNTIME_PATH_BYTES];
	char routers[RUNTIME_PATH_BYTES]; /* dir/routers, sockets of all routers */
};

/* configured: the key runtime_dir; empty or NULL: /run/baton for root, otherwise
 * /tmp/baton-UID. Refused with its length when over the limit. Only names: the system is
 * not asked. */
MUST_CHECK status runtime_name(
	struct runtime *rt, const char *configured, struct err *err);
/* Makes the directory (0700) and routers/ inside it if missing; refuses a link, another
 * owner, or a mode that lets others in. */
MUST_CHECK status runtime_open(
	struct runtime *rt, const char *configured, struct err *err);
/* out = dir/NAME, with NAME formatted; refused with both lengths when over 107 bytes. */
MUST_CHECK status runtime_path(const struct runtime *rt, char out[RUNTIME_PATH_BYTES],
	struct err *err, const char *fmt, ...) PRINTF_LIKE(4, 5);

enum runtime_socket_kind { RUNTIME_STREAM, RUNTIME_SEQPACKET };
/* Whether somebody listens at the path; false: it may be free to be bound. */
MUST_CHECK status runtime_answers(
	const char *path, enum runtime_socket_kind kind, bool *answers, struct err *err);
/* Before a bind: remove a socket file on which nobody answers. ST_PEER when somebody
 * does, ST_INVALID when the path is not a socket. No file is fine. */
MUST_CHECK status runtime_remove_stale(
	const char *path, enum runtime_socket_kind kind, struct err *err);

/* Which file stood at a path: a path that somebody else's file took is not ours to use or
 * to remove. Zero: none. */
struct runtime_file {
	dev_t dev;
	ino_t ino;
};
/* false, with errno: nothing stands there. */
MUST_CHECK bool runtime_file_note(struct runtime_file *f, const char *path);
bool runtime_file_stands(const struct runtime_file *f, const char *path);

/* Tells one run of the host from another: two processes with the same text share it. */
MUST_CHECK status runtime_boot_id(char *out, size_t size, struct err *err);

#endif
