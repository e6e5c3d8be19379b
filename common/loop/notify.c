/* sd_notify without libsystemd: one datagram per event. */
#include "common/loop/notify.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static bool send_text(const char *text)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	size_t len = path != NULL ? strlen(path) : 0;
	ssize_t n;
	int fd;

	if (len < 2 || len >= sizeof(to.sun_path) || (path[0] != '/' && path[0] != '@'))
		return false;
	memcpy(to.sun_path, path, len);
	if (path[0] == '@')
		to.sun_path[0] = 0; /* abstract: a zero byte, and no zero at the end */
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return false;
	n = sendto(fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT,
		(const struct sockaddr *)&to,
		(socklen_t)(offsetof(struct sockaddr_un, sun_path) + len));
	close(fd);
	return n == (ssize_t)strlen(text);
}

bool notify_ready(void)
{
	return send_text("READY=1");
}

bool notify_stopping(void)
{
	return send_text("STOPPING=1");
}

bool notify_watchdog(void)
{
	return send_text("WATCHDOG=1");
}

bool notify_status(const char *fmt, ...)
{
	char text[256] = "STATUS=";
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text + strlen("STATUS="), sizeof(text) - strlen("STATUS="), fmt, ap);
	va_end(ap);
	/* A line break would begin another assignment. */
	for (char *c = text; *c != 0; c++)
		if (*c == '\n')
			*c = ' ';
	return send_text(text);
}

static bool env_u64(const char *name, uint64_t *v)
{
	const char *text = getenv(name);
	char *end;

	if (text == NULL || *text < '0' || *text > '9')
		return false;
	*v = strtoull(text, &end, 10);
	return *end == 0;
}

uint64_t notify_watchdog_ms(void)
{
	uint64_t usec, pid;

	if (!env_u64("WATCHDOG_USEC", &usec))
		return 0;
	/* Meant for another process that passed its environment on. */
	if (env_u64("WATCHDOG_PID", &pid) && pid != (uint64_t)getpid())
		return 0;
	return usec >= 4000 ? usec / 2000 : usec > 0 ? 1 : 0;
}
