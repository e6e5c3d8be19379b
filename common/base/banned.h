/* Included into every C file: what has a safer form here does not compile. */
#ifndef COMMON_BASE_BANNED_H
#define COMMON_BASE_BANNED_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#pragma GCC poison strcpy strcat sprintf vsprintf gets strtok atoi atol atoll atof       \
	strncpy strncat
#endif
