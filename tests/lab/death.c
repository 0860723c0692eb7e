/* A process with this library dies at a write of its choice to its catalog: before the kernel has
 * heard of it, or just after. The file that HEADGATE_DEATH names holds "COUNT before" or
 * "COUNT after" while death is due; what was counted goes to the file of that name and ".seen", a
 * byte each. Files without "/catalog." in their path are not touched. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#define FILES "/catalog."

static int names_the_catalog(const char *path)
{
	return path != NULL && strstr(path, FILES) != NULL;
}

static int is_the_catalog(int fd)
{
	char link[64], path[4096];
	ssize_t length;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	length = readlink(link, path, sizeof(path) - 1);
	if (length < 0)
		return 0;
	path[length] = 0;
	return names_the_catalog(path);
}

/* Plain system calls from here: the library's own files are none of those it watches. */
static int due(long *at, int *after)
{
	const char *order = getenv("HEADGATE_DEATH");
	char text[64], when[16] = "";
	ssize_t length;
	int fd;

	if (order == NULL)
		return 0;
	fd = syscall(SYS_openat, AT_FDCWD, order, O_RDONLY | O_CLOEXEC, 0);
	if (fd < 0)
		return 0;
	length = syscall(SYS_read, fd, text, sizeof(text) - 1);
	syscall(SYS_close, fd);
	if (length <= 0)
		return 0;
	text[length] = 0;
	if (sscanf(text, "%ld %15s", at, when) != 2)
		return 0;
	*after = strcmp(when, "after") == 0;
	return 1;
}

/* The kernel counts, also for threads beside each other: where a byte was appended. */
static long count(void)
{
	char path[4096];
	long counted = -1;
	int fd;

	snprintf(path, sizeof(path), "%s.seen", getenv("HEADGATE_DEATH"));
	fd = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (fd >= 0) {
		if (syscall(SYS_write, fd, ".", 1) == 1)
			counted = syscall(SYS_lseek, fd, 0, SEEK_CUR);
		syscall(SYS_close, fd);
	}
	return counted;
}

/* 1: the process dies when the call has been carried out. */
static int meets(int is_ours)
{
	int saved = errno, after = 0, dies = 0;
	long at = 0;

	if (is_ours && due(&at, &after) && count() == at) {
		if (!after)
			kill(getpid(), SIGKILL);
		dies = 1;
	}
	errno = saved;
	return dies;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define WATCHED(result, name, is_ours, parameters, arguments) \
	result name parameters \
	{ \
		int dies = meets(is_ours); \
		result answer = REAL(name) arguments; \
		if (dies) \
			kill(getpid(), SIGKILL); \
		return answer; \
	}

WATCHED(ssize_t, write, is_the_catalog(fd), (int fd, const void *from, size_t size),
	(fd, from, size))
WATCHED(ssize_t, pwrite, is_the_catalog(fd), (int fd, const void *from, size_t size, off_t at),
	(fd, from, size, at))
WATCHED(ssize_t, pwrite64, is_the_catalog(fd), (int fd, const void *from, size_t size, off64_t at),
	(fd, from, size, at))
WATCHED(int, fsync, is_the_catalog(fd), (int fd), (fd))
WATCHED(int, fdatasync, is_the_catalog(fd), (int fd), (fd))
WATCHED(int, ftruncate, is_the_catalog(fd), (int fd, off_t size), (fd, size))
WATCHED(int, ftruncate64, is_the_catalog(fd), (int fd, off64_t size), (fd, size))
WATCHED(int, unlink, names_the_catalog(path), (const char *path), (path))
WATCHED(int, rename, names_the_catalog(to), (const char *from, const char *to), (from, to))
