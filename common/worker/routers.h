/* Every router of this host, found by its socket in RUNTIME/routers: one DEALER each,
 * with hello, beats both ways, and the rules of life and death (protocol, section 4).
 *
 *   DOWN --connected--> HELLO --its hello--> LIVE --silent, socket ended--> HELLO, DOWN
 *                         |  ^
 *            id in use    v  | a second later, for 10 s
 *                        BARRED
 */
#ifndef COMMON_WORKER_ROUTERS_H
#define COMMON_WORKER_ROUTERS_H
#include "common/base/err.h"
#include "common/loop/bus.h"
#include <stdbool.h>
#include <stdint.h>

#define ROUTERS_MAX 16u /* that live: a file on which nobody listens has no place */

struct worker;
struct routers;

/* Watches the directory from now on. */
MUST_CHECK status routers_create(
	struct routers **out, struct worker *w, struct bus_net *net, struct err *err);
void routers_destroy(struct routers *s);

/* msg: a struct msg_<type>. false: that router is not connected (any more), so there is
 * nobody to tell. A router whose queue is full is lost at the next turn. */
bool routers_send(struct routers *s, uint64_t incarnation, uint8_t type, const void *msg);
void routers_broadcast(struct routers *s, uint8_t type, const void *msg);
uint32_t routers_live(const struct routers *s);
/* Says to all that this worker drains; what they answer counts from here. */
void routers_drain(struct routers *s);
/* A beat now: what it says is waited for. */
void routers_beat(struct routers *s);
/* This router (any) may still send what it placed here before it knew of the drain. A
 * router that does not say what it placed owes nothing. */
bool routers_owes(const struct routers *s, uint64_t incarnation);
bool routers_owe(const struct routers *s);
/* Each turn: routers that fell silent or full. */
void routers_turn(struct routers *s, uint64_t now_ns);

#endif
