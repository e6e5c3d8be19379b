/* Answers about the router, the model and the cluster: handlers of routes.c. */
#ifndef ROUTER_INFO_H
#define ROUTER_INFO_H
#include "router/router.h"

#define INFO_MODELS_PREFIX "/v1/models/"

void info_models(struct router *rt, struct http_req *req);
void info_model(struct router *rt, struct http_req *req);
void info_version(struct router *rt, struct http_req *req);
void info_ping(struct router *rt, struct http_req *req);
void info_metrics(struct router *rt, struct http_req *req);
void info_load(struct router *rt, struct http_req *req);
void info_server(struct router *rt, struct http_req *req);
void info_tokenizer(struct router *rt, struct http_req *req);
/* At start: rt->tokenizer_info, start-up memory. */
MUST_CHECK status info_tokenizer_open(struct router *rt, struct err *err);

#endif
