/* /openapi.json, made of the tables: routes, dialects, members of requests. */
#ifndef ROUTER_OPENAPI_H
#define ROUTER_OPENAPI_H
#include "router/router.h"

void openapi_answer(struct router *rt, struct http_req *req);

#endif
