/* Streaming decoder: a token's bytes pass through a UTF-8 check that keeps at most
 * three bytes of an unfinished character. */
#include "common/model/detok.h"

#include "common/base/utf8.h"

void detok_init(struct detok *d, const struct tokenizer *t, bool skip_special)
{
	*d = (struct detok){.t = t, .skip_special = skip_special};
}

static void replace(struct sink *out)
{
	sink_put(out, UTF8_REPLACEMENT, sizeof(UTF8_REPLACEMENT) - 1);
}

/* One byte behind the held ones. The held bytes alone are a beginning of a character,
 * so when they break, they are one maximal subpart and the byte starts afresh. */
static void feed_byte(struct detok *d, uint8_t byte, struct sink *out)
{
	struct utf8_step step;

	d->held[d->n_held++] = byte;
	step = utf8_step((struct bytes){d->held, d->n_held});
	if (step.kind == UTF8_PARTIAL)
		return;
	if (step.kind == UTF8_WHOLE) {
		sink_put(out, d->held, d->n_held);
		d->n_held = 0;
		return;
	}
	replace(out);
	if (d->n_held == 1) {
		d->n_held = 0;
		return;
	}
	d->n_held = 0;
	feed_byte(d, byte, out);
}

void detok_feed(struct detok *d, uint32_t id, struct sink *out)
{
	struct bytes text = tokenizer_token_bytes(d->t, id);
	size_t at = 0;

	if (d->skip_special && tokenizer_is_special(d->t, id))
		return;
	while (at < text.len) {
		size_t whole = d->n_held > 0 ? 0
					     : utf8_valid_len((struct bytes){
						       text.at + at, text.len - at});

		sink_put(out, text.at + at, whole);
		at += whole;
		if (at < text.len)
			feed_byte(d, text.at[at++], out);
	}
}

void detok_flush(struct detok *d, struct sink *out)
{
	if (d->n_held > 0)
		replace(out);
	d->n_held = 0;
}
