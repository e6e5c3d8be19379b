/* The head for drafts. Nothing reads it; a config that announces one that is absent, or
 * there in part, is worth a line, since whoever switches drafts on will need it. */
#include "common/model/weights_impl.h"

#include "common/base/log.h"

#include <stdio.h>

#define SHOWN_MAX 3u

struct missing {
	uint32_t n;
	struct sink names;
};

static void miss(struct missing *m, const char *name)
{
	if (m->n++ < SHOWN_MAX)
		sink_fmt(&m->names, "%s%s", m->n > 1 ? ", " : "", name);
}

/* MODULE, or a matrix of it in any format. */
static bool has(const struct weights *w, const char *module, const char *spelling)
{
	char name[160];

	snprintf(name, sizeof(name), "%s%s", module, spelling);
	return st_find(w->st, name) != NULL;
}

static void check_layer_module(
	const struct weights *w, uint32_t layer, enum module m, struct missing *missing)
{
	const char *text = module_text(m);
	bool bare = module_style(m) == STYLE_BARE;
	char name[128];

	snprintf(name, sizeof(name), "mtp.layers.%u.%s", layer, text);
	if (has(w, name, bare ? "" : ".weight") || has(w, name, ".weight_packed"))
		return;
	if (bare) { /* experts, perhaps one by one */
		snprintf(name, sizeof(name), "mtp.layers.%u.mlp.experts.0.%s", layer,
			m == MOD_EXPS_DOWN ? "down_proj" : "gate_proj");
		if (has(w, name, ".weight") || has(w, name, ".weight_packed"))
			return;
		snprintf(name, sizeof(name), "mtp.layers.%u.%s", layer, text);
	} else {
		snprintf(name, sizeof(name), "mtp.layers.%u.%s.weight", layer, text);
	}
	miss(missing, name);
}

/* A layer of the head is an attention layer with the MLP of the trunk. */
static bool is_of_head(const struct model_config *c, enum module m)
{
	switch (module_where(m)) {
	case WHERE_layer:
	case WHERE_attn:
		return true;
	case WHERE_dense:
		return c->n_experts == 0;
	case WHERE_moe:
		return c->n_experts > 0 && module_style(m) != STYLE_EXPERT;
	case WHERE_global:
	case WHERE_gdn:
		return false;
	}
	return false;
}

void weights_tell_mtp(const struct weights *w)
{
	static const char *const globals[] = {"mtp.fc", "mtp.norm",
		"mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden"};
	const struct model_config *c = w->config;
	struct missing missing = {0};
	char name[64];

	if (c->mtp_layers == 0)
		return;
	if (w->unused[UNUSED_MTP] == 0) {
		log_info(
			"mtp_num_hidden_layers %u announces a head for drafts, and there "
			"is no tensor mtp.fc.weight nor any other of it",
			c->mtp_layers);
		return;
	}
	sink_init(&missing.names, 1000);
	for (size_t i = 0; i < COUNT(globals); i++) {
		snprintf(name, sizeof(name), "%s.weight", globals[i]);
		if (!has(w, name, ""))
			miss(&missing, name);
	}
	for (uint32_t layer = 0; layer < c->mtp_layers; layer++) {
		for (uint32_t m = 0; m < MOD__COUNT; m++) {
			if (is_of_head(c, (enum module)m))
				check_layer_module(w, layer, (enum module)m, &missing);
		}
	}
	if (missing.n > 0)
		log_info(
			"mtp_num_hidden_layers %u announces a head for drafts, and %u of "
			"its tensors are missing: %s%s",
			c->mtp_layers, missing.n, sink_cstr(&missing.names),
			missing.n > SHOWN_MAX ? ", ..." : "");
	sink_release(&missing.names);
}
