/* Begin and end of a program. */
#include "common/base/process.h"

#include "common/base/bytes.h"
#include "common/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Of numbers that are not open the lowest is given out first. */
static status fill_standard(struct err *err)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
		if (fcntl(fd, F_GETFD) >= 0)
			continue;
		if (open("/dev/null", O_RDWR) != fd)
			return err_set(err, ST_IO, "/dev/null as descriptor %d: %s", fd,
				strerror(errno));
	}
	return ST_OK;
}

uint64_t process_descriptors(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		return 0;
	return limit.rlim_cur;
}

static status raise_limit(struct err *err)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		/* Refused: the number below says what there is. */
		(void)!setrlimit(RLIMIT_NOFILE, &limit);
	}
	if (process_descriptors() < PROCESS_DESCRIPTORS_MIN)
		return err_set(err, ST_LIMIT,
			"this process may open %llu descriptors (ulimit -Hn), it needs "
			"%u",
			(unsigned long long)process_descriptors(),
			PROCESS_DESCRIPTORS_MIN);
	return ST_OK;
}

status process_begin(struct err *err)
{
	status st = fill_standard(err);

	if (st == ST_OK)
		st = log_begin(err);
	return st == ST_OK ? raise_limit(err) : st;
}

int process_end(int code)
{
	log_end();
	return code;
}

_Noreturn void process_leave(int code)
{
	log_end();
	_exit(code);
}
