/* What router/template*.c share: the pool of children and one child. Private. */
#ifndef ROUTER_TEMPLATE_IMPL_H
#define ROUTER_TEMPLATE_IMPL_H
#include "router/template.h"

#include "common/base/list.h"

#include <sys/types.h>

#define TEMPLATE_CHILDREN_MAX 8u
/* Bytes of one rendered prompt. */
#define TEMPLATE_RESULT_MAX   (64u << 20)
/* From spawn to ready; an import of jinja2 takes 0.1 s. */
#define TEMPLATE_START_MS     10000

struct template_job {
	struct list_node node; /* of its queue, or of those that ended */
	uint64_t ticket;
	template_fn *fn; /* NULL: withdrawn */
	void *ctx;
	char *request; /* owned */
	size_t len;
	/* how it ended, for fn */
	status code;
	struct err err;
	struct sink frame;
	struct bytes text;
};

/* Jobs by length: a long one takes a child for a second and more. */
enum template_size { TEMPLATE_SHORT, TEMPLATE_LONG, TEMPLATE_SIZES };
#define TEMPLATE_SHORT_MAX (64u << 10)

/* What decides whose turn it is. */
struct template_load {
	uint32_t n_children, n_long; /* all of them; those that render a long one */
	uint32_t waiting[TEMPLATE_SIZES];
	enum template_size last; /* that was begun */
};
/* What an idle child takes next; TEMPLATE_SIZES: nothing. One child is there for short
 * ones at any time, and one for long ones; a lone child takes turns. */
enum template_size template_next(const struct template_load *l);

/*   DOWN --spawned--> STARTING --ready--> IDLE <--job, answer--> BUSY
 *    ^                   |                 |                      |
 *    +-------------------+----- limit, death, broken protocol ----+
 *
 * Only template_life.c writes the state. What a job became is told when the event is
 * through (template_settle), so no callback runs inside a move. */
enum child_state {
	CHILD_DOWN,     /* no process, or one that is to be reaped */
	CHILD_STARTING, /* is spawned, has not said that it is ready */
	CHILD_IDLE,
	CHILD_BUSY,
	CHILD__STATES
};

struct template_child {
	struct template *t;
	enum child_state state;
	pid_t pid; /* 0: none */
	int fd;    /* -1: none */
	struct loop_fd *watch;
	struct loop_timer timer; /* the limit of STARTING and BUSY; the retry of DOWN */
	struct sink in;
	/* The frame that is sent: its length, then body, which its owner keeps. */
	uint8_t head[4];
	struct bytes body;
	size_t n_sent;            /* of both */
	struct template_job *job; /* BUSY */
	uint64_t began_ns;        /* clock_ran_ns at which it was given the job */
	uint64_t began_cpu_ns;    /* that the process had used until then */
	uint32_t failures;        /* starts and deaths since the last good render */
};

struct template
{
	struct loop *loop;
	char *python;
	struct sink init; /* first frame of each child */
	uint64_t memory_bytes;
	uint32_t n_children, render_ms, queue_max;
	uint64_t restarts;
	uint64_t last_ticket;
	bool ready; /* create succeeded: deaths are logged, children started again */
	bool none;  /* a child says that the model has no template */
	struct list queue[TEMPLATE_SIZES];
	struct list ended; /* jobs whose callback is due */
	enum template_size last;
	struct err start_error; /* why the last child did not become ready */
	struct template_child children[TEMPLATE_CHILDREN_MAX];
};

/* template_child.c */
MUST_CHECK status template_child_spawn(struct template_child *c, struct err *err);
/* Sends a frame; what does not fit now goes later. body stays valid until
 * template_child_sends is false, or the child was killed. */
void template_child_send(struct template_child *c, struct bytes body);
bool template_child_sends(const struct template_child *c);
/* Reads and writes what is possible now, as much as one turn may move. */
void template_child_io(struct template_child *c);
/* Ends the process and the socket; the job stays with the child. */
void template_child_kill(struct template_child *c);
/* What the process has computed so far. */
uint64_t template_child_cpu_ns(const struct template_child *c);
/* true: there is no process any more. */
bool template_child_reap(struct template_child *c);

/* template_life.c */
void template_child_start(struct template_child *c);
/* Of a child that is DOWN: once its process is gone. */
void template_child_respawn(void *child);
/* The next job, if it is IDLE. */
void template_child_feed(struct template_child *c);
/* Before the loop runs: what is wrong with the template or python is known at start. */
MUST_CHECK status template_child_wait(struct template_child *c, struct err *err);
/* What the child saw; frame is taken. */
void template_on_frame(
	struct template_child *c, char kind, struct sink *frame, struct bytes text);
void template_on_end(struct template_child *c, status code, const char *why);

/* template.c: the job for a child that is idle; NULL: none. */
struct template_job *template_take(struct template *t);
/* Its callback is due. */
void template_fail(struct template *t, struct template_job *job, const struct err *err);
/* All that wait fail. */
void template_give_up(struct template *t);
/* At the end of every event of a child: callbacks of what ended, work for who is idle. */
void template_settle(struct template *t);

#endif
