/* Stop ids and stop strings of one sequence. */
#include "decode-worker/dw_text.h"

#include "common/base/mem.h"

/* Text of one token and of what it completes; a token has at most 1 KiB. */
#define PIECE_BYTES_MAX 8192

static bool is_eos(const struct tokenizer *t, uint32_t id)
{
	size_t n;
	const uint32_t *eos = tokenizer_eos(t, &n);

	for (size_t i = 0; i < n; i++)
		if (eos[i] == id)
			return true;
	return false;
}

static status add_strings(struct stop_set *set, struct bytes list, struct err *err)
{
	struct cursor c = {list.at, list.at + list.len};

	while (c.at < c.end) {
		struct bytes length, text;
		status st;

		if (!cur_take(&c, 2, &length) ||
			!cur_take(&c, (size_t)(length.at[0] | length.at[1] << 8), &text))
			return err_set(err, ST_INVALID,
				"stop_strings end inside a string (%zu bytes)", list.len);
		st = stop_set_add(set, text, err);
		if (st != ST_OK)
			return st;
	}
	return ST_OK;
}

status dw_text_init(struct dw_text *x, const struct tokenizer *t,
	const struct msg_adopt *m, struct err *err)
{
	size_t n = wire_count(m->stop_ids, uint32_t);
	bool ignore_eos = m->has_ignore_eos && m->ignore_eos;
	status st;

	*x = (struct dw_text){.n_unread = (uint32_t)m->draw.min_tokens};
	for (size_t i = 0; i < n; i++) {
		uint32_t id = wire_u32(m->stop_ids, i);

		if (!ignore_eos || !is_eos(t, id))
			x->stop_ids[x->n_stop_ids++] = id;
	}
	if (!m->has_stop_strings || m->stop_strings.len == 0)
		return ST_OK;
	x->set = mem_take(1, sizeof(*x->set));
	if (x->set == NULL)
		return err_set(err, ST_LIMIT, "no request memory for stop strings");
	stop_set_init(x->set);
	st = add_strings(x->set, m->stop_strings, err);
	if (st != ST_OK) {
		dw_text_release(x);
		return st;
	}
	stop_init(&x->stop, x->set);
	detok_init(&x->detok, t, true);
	return ST_OK;
}

void dw_text_release(struct dw_text *x)
{
	mem_give(x->set);
	x->set = NULL;
}

static bool completes_string(struct dw_text *x, uint32_t token)
{
	struct sink piece, shown;
	bool found;

	if (x->set == NULL)
		return false;
	sink_init(&piece, PIECE_BYTES_MAX);
	sink_init(&shown, PIECE_BYTES_MAX);
	detok_feed(&x->detok, token, &piece);
	if (x->n_unread > 0) {
		x->n_unread--;
		sink_reset(&piece);
	}
	found = stop_feed(&x->stop, sink_bytes(&piece), &shown) >= 0;
	sink_release(&piece);
	sink_release(&shown);
	return found;
}

bool dw_text_feed(struct dw_text *x, uint32_t token, enum wire_finish *why)
{
	for (uint32_t i = 0; i < x->n_stop_ids; i++)
		if (x->stop_ids[i] == token) {
			*why = FINISH_STOP_TOKEN;
			return true;
		}
	*why = FINISH_STOP_STRING;
	return completes_string(x, token);
}
