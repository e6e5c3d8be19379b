/* What ends an answer by its content: stop ids and stop strings. The router cuts the
 * text; here only the end is found, at the same token as there. */
#ifndef DECODE_WORKER_DW_TEXT_H
#define DECODE_WORKER_DW_TEXT_H
#include "common/base/bytes.h"
#include "common/base/err.h"
#include "common/model/detok.h"
#include "common/model/stop.h"
#include "common/wire/wire.h"

#define DW_STOP_IDS_MAX 64u /* schema.def, adopt.stop_ids */

struct dw_text {
	uint32_t stop_ids[DW_STOP_IDS_MAX];
	uint32_t n_stop_ids;
	uint32_t n_unread; /* tokens to come in whose text no stop string is looked for */
	struct stop_set *set; /* NULL: no stop strings; from mem_take */
	struct stop stop;
	struct detok detok;
};

/* Until min_tokens have come the text is not looked at. ignore_eos: ids that end an
 * answer for the model itself do not; others still do. */
MUST_CHECK status dw_text_init(struct dw_text *x, const struct tokenizer *t,
	const struct msg_adopt *m, struct err *err);
void dw_text_release(struct dw_text *x);
/* The next token of the answer. false: it goes on; true: *why says how it ended. */
bool dw_text_feed(struct dw_text *x, uint32_t token, enum wire_finish *why);

#endif
