/* What batonctl does; each returns an enum ctl_exit. */
#ifndef DEPLOY_CTL_COMMANDS_H
#define DEPLOY_CTL_COMMANDS_H
#include "deploy/ctl/options.h"
#include "deploy/ctl/talk.h"

int show_status(struct talk *t, const struct ctl_options *o);
int show_top(struct talk *t, const struct ctl_options *o);
int show_answer(struct talk *t, const struct ctl_options *o); /* ask */
int order_drain(struct talk *t, const struct ctl_options *o);
int order_undrain(struct talk *t, const struct ctl_options *o);

#endif
