/* Configuration of baton-router: one table gives keys, defaults, bounds, file and
 * --help (common/base/conf.h). */
#ifndef ROUTER_ROUTER_CONF_H
#define ROUTER_ROUTER_CONF_H
#include "common/base/conf.h"
#include "common/base/err.h"

#define ROUTER_NAMES_MAX 32u

// clang-format off
#define ROUTER_CONF(U64, F64, STR, BOOL, WORD) \
STR(id, "r0", "name of this router: letters, digits, . _ -; names its socket")               \
STR(model, NULL, "directory of the checkpoint: tokenizer, template, config.json")            \
STR(host, "127.0.0.1", "address literal to listen on; :: is both families")                  \
U64(port, "8000", 0, 65535, "HTTP port; 0: any free one")                                    \
STR(uds, "", "Unix socket to listen on besides the port")                                    \
STR(api_key_file, "", "keys that clients show, one a line; read again on SIGHUP; empty: none") \
U64(probe_port, "0", 0, 65535, "health probes on a thread of their own; 0: off")             \
STR(chat_template, "", "template file instead of the model's own")                           \
STR(python, "", "python3 with jinja2; empty: /usr/bin/python3")                              \
BOOL(strict_template, "false", "messages reach the template as they came")                   \
WORD(generation_config, "auto", "auto|none", "sampling defaults of the model's file, if any") \
U64(max_queued, "16384", 1, 65536, "requests that wait for workers; more: 503")              \
F64(queue_timeout_s, "60", 0.05, 86400, "longest wait for workers")                          \
F64(stall_timeout_s, "300", 0.05, 86400, "longest time without progress at workers")               \
U64(max_replays, "2", 0, 2, "how often a request is begun again when its worker is lost")    \
F64(worker_wait_s, "20", 0.05, 86400, "how long requests wait for a role without workers")   \
U64(silent_ms, "2000", 20, 600000, "silence after which a worker gets no new work")          \
U64(body_max_mb, "32", 1, 1024, "largest body of a request, MiB")                            \
U64(request_memory_mb, "1024", 1, 1048576, "memory of all requests, MiB; then 503")          \
U64(connections_max, "4096", 1, 65536, "open connections")                                   \
U64(idle_timeout_s, "75", 1, 86400, "a connection between two requests is closed after this") \
U64(stream_drain_s, "60", 1, 3600, "a client that reads nothing is cut after this")          \
F64(keepalive_s, "15", 0.05, 3600, "silence in a stream before a comment is sent")           \
F64(drain_delay_s, "0", 0, 3600, "after a stop is asked for, requests are still taken so long, while /ready says 503") \
U64(settle_ms, "100", 0, 600000, "how long a stop goes on answering 503 at least") \
CONF_SHARED(U64, F64, STR, BOOL, WORD)
// clang-format on

struct router_conf {
	CONF_STRUCT(ROUTER_CONF)
	/* Repeatable, '\n' between; "": the name of the model's directory. The first is
	 * the one that answers carry. */
	const char *served_model_name;
	/* Repeatable likewise; "": answers say nothing of origins. */
	const char *cors_origin;
};

/* conf_load with it also checks what one key alone cannot say, and sets the log level. */
extern const struct conf_table router_conf_table;

#endif
