/* Detokenize, stop, split. Tags are remembered as byte ranges of the raw text, because
 * the stop matcher may hold text back across them. */
#include "router/output.h"

#include <assert.h>
#include <string.h>

enum output_mode output_mode_of(struct bytes prompt)
{
	static const char open[] = "<think>\n";
	size_t n = sizeof(open) - 1;

	if (prompt.len >= n && memcmp(prompt.at + prompt.len - n, open, n) == 0)
		return OUTPUT_REASONING;
	return OUTPUT_CONTENT;
}

void output_init(struct output *o, const struct tokenizer *t, enum output_mode mode,
	const struct stop_set *stop, size_t text_max)
{
	*o = (struct output){.t = t, .mode = mode, .id_open = -1, .id_close = -1};
	detok_init(&o->detok, t, true);
	stop_init(&o->stop, stop);
	sink_init(&o->raw, text_max);
	sink_init(&o->safe, text_max);
	sink_init(&o->reasoning, text_max);
	sink_init(&o->content, text_max);
	o->thinking = o->token_thinking = mode == OUTPUT_REASONING;
	if (mode != OUTPUT_RAW) {
		o->id_open = tokenizer_find(t, "<think>");
		o->id_close = tokenizer_find(t, "</think>");
	}
}

void output_show_special(struct output *o)
{
	detok_init(&o->detok, o->t, false);
}

void output_release(struct output *o)
{
	sink_release(&o->raw);
	sink_release(&o->safe);
	sink_release(&o->reasoning);
	sink_release(&o->content);
}

/* Newlines around the border belong to neither side; everything else is text. */
static void put_text(struct output *o, const uint8_t *at, size_t len)
{
	if (o->trim_lead) {
		while (len > 0 && *at == '\n') {
			at++;
			len--;
		}
		if (len == 0)
			return;
		o->trim_lead = false;
	}
	if (len == 0)
		return;
	o->any = true;
	if (!o->thinking) {
		sink_put(&o->content, at, len);
		return;
	}
	if (o->held_newline)
		sink_put(&o->reasoning, "\n", 1);
	o->held_newline = at[len - 1] == '\n';
	sink_put(&o->reasoning, at, o->held_newline ? len - 1 : len);
}

static void pass_tag(struct output *o, const struct output_tag *tag)
{
	if (tag->closes) {
		o->thinking = false;
		o->held_newline = false;
	}
	o->trim_lead = true;
}

/* Text that the stop matcher let go, cut at the tags. */
static void split_safe(struct output *o)
{
	const uint8_t *at = o->safe.at;
	size_t left = o->safe.len;

	while (left > 0) {
		struct output_tag *tag = o->n_tags > 0 ? &o->tag[0] : NULL;
		uint64_t until = tag == NULL ? left
				 : o->split < tag->begin
					 ? MIN(left, tag->begin - o->split)
					 : MIN(left, tag->end - o->split);

		if (tag == NULL || o->split < tag->begin)
			put_text(o, at, (size_t)until);
		o->split += until;
		at += until;
		left -= (size_t)until;
		if (tag != NULL && o->split == tag->end) {
			pass_tag(o, tag);
			memmove(o->tag, o->tag + 1, --o->n_tags * sizeof(o->tag[0]));
		}
	}
	sink_reset(&o->safe);
}

/* No </think> follows any more: the newline was text. */
static void release_newline(struct output *o)
{
	if (o->held_newline)
		sink_put(&o->reasoning, "\n", 1);
	o->held_newline = false;
}

/* A <think> counts as a tag only when no text came before it. */
static bool is_tag(const struct output *o, uint32_t id, uint64_t fed_before)
{
	if ((int64_t)id == o->id_close)
		return true;
	return (int64_t)id == o->id_open && fed_before == 0 &&
	       o->mode == OUTPUT_REASONING;
}

/* What is not looked at is text at once: the matcher holds nothing yet. */
static int read_stops(struct output *o)
{
	int hit;

	if (o->n_unread == 0) {
		hit = stop_feed(&o->stop, sink_bytes(&o->raw), &o->safe);
		if (hit >= 0 && o->keep_stop)
			sink_put(&o->safe, o->stop.set->text[hit], o->stop.set->len[hit]);
		return hit;
	}
	o->n_unread--;
	sink_put(&o->safe, o->raw.at, o->raw.len);
	return -1;
}

int output_feed(struct output *o, uint32_t id)
{
	uint64_t before = o->fed;
	int hit;

	o->n_reasoning_tokens += o->token_thinking;
	detok_feed(&o->detok, id, &o->raw);
	o->fed += o->raw.len;
	if (is_tag(o, id, before) && o->fed > before) {
		uint64_t len = tokenizer_token_bytes(o->t, id).len;

		assert(o->n_tags < OUTPUT_TAGS_MAX);
		/* A character that the tag cut short comes out in front of it. */
		o->tag[o->n_tags++] = (struct output_tag){
			.begin = o->fed - MIN(len, o->fed),
			.end = o->fed,
			.closes = (int64_t)id == o->id_close,
		};
		if ((int64_t)id == o->id_close)
			o->token_thinking = false;
	}
	hit = read_stops(o);
	sink_reset(&o->raw);
	split_safe(o);
	if (hit >= 0)
		release_newline(o);
	return hit;
}

void output_finish(struct output *o)
{
	detok_flush(&o->detok, &o->raw);
	o->fed += o->raw.len;
	if (stop_feed(&o->stop, sink_bytes(&o->raw), &o->safe) < 0)
		stop_flush(&o->stop, &o->safe);
	sink_reset(&o->raw);
	split_safe(o);
	release_newline(o);
}
