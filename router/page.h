/* A browser's page at /, and the status that it shows at /status. */
#ifndef ROUTER_PAGE_H
#define ROUTER_PAGE_H
#include "router/router.h"

void page_answer(struct router *rt, struct http_req *req);
/* What batonctl is told, as JSON: the router and its workers. */
void page_status(struct router *rt, struct http_req *req);

#endif
