/* POST /tokenize and /detokenize. */
#ifndef ROUTER_TOK_CALL_H
#define ROUTER_TOK_CALL_H
#include "router/router.h"

void tok_call_tokenize(struct router *rt, struct http_req *req);
void tok_call_count(struct router *rt, struct http_req *req);
void tok_call_detokenize(struct router *rt, struct http_req *req);

#endif
