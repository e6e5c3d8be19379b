/* The exporter's own structures, shared by its files: exporter.c (links),
 * exporter_socket.c (where they come from), exporter_msg.c and exporter_stage.c (what
 * importers ask for). */
#ifndef COMMON_XFER_EXPORTER_IMPL_H
#define COMMON_XFER_EXPORTER_IMPL_H
#include "common/base/list.h"
#include "common/loop/runtime.h"
#include "common/xfer/link.h"
#include "common/xfer/xfer.h"

#define EXPORTER_LINKS_MAX 64u

struct export_stage; /* exporter_stage.c */

struct export_link {
	struct exporter *exporter;
	struct link *link; /* NULL: unused entry */
	uint64_t id;       /* never repeats; what leases know as claimer */
	bool opened;
	char peer_id[49];
	uint64_t peer_incarnation;
	struct loop_timer open_timeout;
	struct export_stage *stage; /* NULL: it reads our arenas itself */
};

struct export_socket {
	char path[RUNTIME_PATH_BYTES];
	struct runtime_file file; /* as it was bound */
	int fd;                   /* listens; the watch closes it */
	struct loop_fd *watch;
	struct loop_timer accept_pause, check;
	bool lost; /* it is not there, and that was said */
};

struct exporter {
	struct xfer_side side;
	struct leases *leases;
	uint64_t lease_ns;
	struct arena_ticket ticket[RANKS_MAX];
	struct export_socket socket;
	struct export_link entries[EXPORTER_LINKS_MAX];
	uint32_t n_links;
	uint64_t last_link;
	struct list digests; /* being computed */
	struct list stages;  /* those of links that have ended included */
};

struct export_link *exporter_link_find(struct exporter *x, uint64_t id);
void exporter_link_end(struct export_link *e, const struct err *why);
/* A connection that was accepted; takes fd. */
void exporter_admit(struct exporter *x, int fd);

/* exporter_socket.c: makes the path, binds, and looks every second whether the file is
 * still there. */
MUST_CHECK status export_socket_open(struct exporter *x, struct err *err);
void export_socket_close(struct exporter *x);

/* exporter_msg.c. ctx: struct export_link. */
extern const struct link_events exporter_link_events;
/* Digests for claims of this link stop soon and are answered to nobody. */
void export_digest_cancel(struct exporter *x, uint64_t link);
/* No digest runs any more at return. */
void export_digest_abandon(struct exporter *x);

/* exporter_stage.c: memory that an importer gave, and copies into it. export_stage_open
 * takes the descriptor. */
MUST_CHECK status export_stage_open(
	struct export_link *e, const struct msg_stage *m, int *fd, struct err *err);
MUST_CHECK status export_stage_fetch(
	struct export_link *e, const struct msg_fetch *m, struct err *err);
/* The link ends; the memory is released when no copy runs. */
void export_stage_end(struct export_link *e);
/* No copy runs any more at return. */
void export_stage_abandon(struct exporter *x);

#endif
