/* The launcher: one tiny process per keeper that forks the jobs.
 *
 * It stays small and static, so its fork is cheap where a second exec per job would double the price of a start
 * (docs/decisions/0011-keeper.md has the figures). CLONE_PARENT makes each job the keeper's own child: the keeper
 * reaps it and loses nothing when the launcher dies. What can hang or fail, from the claim to the exec, happens in
 * the forked child.
 *
 *   launcher OOM                    frames on descriptor 3, replies on descriptor 4, both from the keeper
 *   launcher --keeper PROGRAM ...   becomes PROGRAM, as the parent of all orphans below it
 *
 * A frame is three numbers in native order (length of the rest of the frame, count of arguments, count of
 * environment entries) and then these as strings, each ended by a NUL. launcher.py takes the same arguments.
 *
 *   serial  record  name  keeper-pid  oom  count-of-cgroups  cgroup.procs...        from the keeper
 *   uid  gid  groups  umask  cwd  output  errors  append  stdin  stdout  stderr  argv...      from the server
 *
 * `oom` is what oom_score_adj is set back to; here it is said once, to the launcher, and its children inherit it.
 * An empty string is "none" or "leave as it is". Replies: "+SERIAL PID", "=SERIAL" (claimed before, nothing was
 * started), "-SERIAL WHY" (no process could be made), "!SERIAL CODE WHY" from the process itself. A code of 125 is the machine's fault, 126 and 127 are the job's.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { REQUESTS = 3, REPLIES = 4, MACHINE = 125, CANNOT_RUN = 126, NOT_FOUND = 127 };
enum { FRAME_MAX = 16 << 20, WHY_MAX = 600, GROUPS_MAX = 65536, DIRECTORIES_MADE_MAX = 4 };

static const char *serial = "0"; /* of the job that this process becomes */

static void reply(const char *format, ...)
{
	char line[WHY_MAX];
	va_list rest;
	va_start(rest, format);
	int length = vsnprintf(line, sizeof line, format, rest);
	va_end(rest);
	if (length >= (int)sizeof line)
		length = sizeof line - 1;
	while (send(REPLIES, line, (size_t)length, MSG_NOSIGNAL) < 0 && errno == EINTR)
		;
}

static _Noreturn void fail(int code, const char *doing, const char *what)
{
	/* Nobody's job is at fault where there is no room left, whoever's path it was. */
	if (errno == ENOSPC || errno == EIO || errno == ENFILE || errno == EMFILE || errno == ENOMEM || errno == EAGAIN)
		code = MACHINE;
	reply("!%s %d cannot %s %s: %s", serial, code, doing, what, strerror(errno));
	_exit(code);
}

/* "c NAME PID UP" in the keeper's record, before anything else: whoever is in there can be found and ended. */
static void claim(const char *record, const char *name, long keeper)
{
	char line[128];
	struct timespec up;
	clock_gettime(CLOCK_BOOTTIME, &up);
	int length = snprintf(line, sizeof line, "c %s %ld %lld\n", name, (long)getpid(),
			      (long long)up.tv_sec * 1000 + up.tv_nsec / 1000000);
	int fd = open(record, O_WRONLY | O_APPEND | O_CLOEXEC);
	if (fd < 0)
		fail(MACHINE, "open", record);
	ssize_t written = write(fd, line, (size_t)length);
	if (written >= 0 && written < length)
		errno = ENOSPC;
	if (written < length)
		fail(MACHINE, "write", record);
	close(fd);
	/* Only now: had the keeper died before the claim, its successor could not have seen us. */
	if (getppid() != keeper)
		_exit(MACHINE);
}

static void write_to(const char *path, const char *text, const char *doing)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		fail(MACHINE, doing, path);
	close(fd);
}

static void make_directories(char *path)
{
	char *cuts[DIRECTORIES_MADE_MAX];
	int count = 0;
	char *slash = strrchr(path, '/');
	while (slash && slash != path && count < DIRECTORIES_MADE_MAX) {
		*slash = 0;
		cuts[count++] = slash;
		if (mkdir(path, 0711) == 0 || errno != ENOENT)
			break;
		slash = strrchr(path, '/');
	}
	while (count) {
		*cuts[--count] = '/';
		if (count)
			mkdir(path, 0711);
	}
}

/* The default output: in a directory of ours, so made with our rights and then given to the user. */
static int open_output(char *path, int append, long uid, long gid)
{
	int flags = O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC | (append ? 0 : O_TRUNC);
	int fd = open(path, flags, 0600);
	if (fd < 0 && errno == ENOENT) {
		make_directories(path);
		fd = open(path, flags, 0600);
	}
	if (fd < 0 || (uid >= 0 && fchown(fd, (uid_t)uid, (gid_t)gid) < 0))
		fail(MACHINE, "open the output", path);
	return fd;
}

static int open_theirs(const char *path, int append)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_NOCTTY | O_CLOEXEC | (append ? O_APPEND : O_TRUNC), 0666);
	if (fd < 0)
		fail(CANNOT_RUN, "open the output", path);
	return fd;
}

static void become(long uid, long gid, const char *groups)
{
	static gid_t list[GROUPS_MAX];
	size_t count = 0;
	char *end;
	for (; *groups && count < GROUPS_MAX; groups = *end ? end + 1 : end)
		list[count++] = (gid_t)strtoul(groups, &end, 10);
	if (setgroups(count, list) < 0 || setresgid((gid_t)gid, (gid_t)gid, (gid_t)gid) < 0 ||
	    setresuid((uid_t)uid, (uid_t)uid, (uid_t)uid) < 0)
		fail(MACHINE, "become", "the job's user");
}

static void put(int fd, int where)
{
	if (dup2(fd, where) < 0)
		fail(MACHINE, "put", "the output in its place");
}

/* What nobody knew before: an entry for it is there where it is wanted. */
static void name_pid(char **environment)
{
	static const char name[] = "SLURM_TASK_PID=";
	static char entry[sizeof name + 20];
	for (; *environment; environment++)
		if (!strncmp(*environment, name, sizeof name - 1)) {
			snprintf(entry, sizeof entry, "%s%ld", name, (long)getpid());
			*environment = entry;
		}
}

static void run(char **argv, char **environment)
{
	name_pid(environment);
	environ = environment;
	execvp(argv[0], argv);
	int code = errno == ENOENT || errno == ENOTDIR ? NOT_FOUND : CANNOT_RUN;
	if (code == NOT_FOUND && strchr(argv[0], '/') && access(argv[0], F_OK) == 0) {
		errno = ENOENT;
		fail(CANNOT_RUN, "find the interpreter that the first line names of", argv[0]);
	}
	fail(code, "run", argv[0]);
}

static _Noreturn void job(char **arg, char **environment)
{
	serial = arg[0];
	long groups_to_join = atol(arg[5]);
	setsid();
	if (*arg[4])
		write_to("/proc/self/oom_score_adj", arg[4], "reset");
	if (*arg[1])
		claim(arg[1], arg[2], atol(arg[3]));
	for (arg += 6; groups_to_join > 0; groups_to_join--)
		write_to(*arg++, "0", "join");
	long uid = *arg[0] ? atol(arg[0]) : -1, gid = *arg[1] ? atol(arg[1]) : -1;
	const char *groups = arg[2], *cwd = arg[4], *in = arg[8], *out = arg[9], *err = arg[10];
	mode_t mask = (mode_t)strtol(arg[3], NULL, 8);
	char *output = arg[5], *errors = arg[6];
	int append = *arg[7] == '1';
	if (*output) {
		int fd = open_output(output, append, uid, gid);
		put(fd, 1);
		put(fd, 2);
	}
	if (*errors)
		put(open_output(errors, append, uid, gid), 2);
	if (uid >= 0)
		become(uid, gid, groups);
	umask(mask);
	if (chdir(cwd) < 0)
		fail(CANNOT_RUN, "go to the directory", cwd);
	if (*in) {
		int fd = open(in, O_RDONLY | O_NOCTTY | O_CLOEXEC);
		if (fd < 0)
			fail(CANNOT_RUN, "open the input", in);
		put(fd, 0);
	}
	if (*out) {
		put(open_theirs(out, append), 1);
		if (!*err && !*errors)
			put(1, 2);
	}
	if (*err)
		put(*out && !strcmp(out, err) ? 1 : open_theirs(err, append), 2);
	run(arg + 11, environment);
	_exit(CANNOT_RUN);
}

static long fork_beside(void)
{
#if defined(__s390__) || defined(__CRIS__)
	return syscall(SYS_clone, 0, CLONE_PARENT | SIGCHLD, 0, 0, 0);
#else
	return syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0);
#endif
}

static void start(char *text, size_t length, uint32_t arguments, uint32_t entries)
{
	char **strings = calloc((size_t)arguments + entries + 2, sizeof *strings);
	char *end = text + length;
	uint32_t seen = 0;
	if (!strings)
		_exit(1);
	for (char *at = text; at < end && seen < arguments + entries; at += strlen(at) + 1)
		strings[seen + (seen >= arguments)] = at, seen++;
	if (seen != arguments + entries || arguments < 18 || end[-1])
		_exit(1); /* not a frame of our keeper: it starts another launcher */
	long pid = fork_beside();
	if (pid == 0)
		job(strings, strings + arguments + 1);
	if (pid < 0)
		reply("-%s cannot start a process: %s", strings[0], strerror(errno));
	else
		reply("+%s %ld", strings[0], pid);
	free(strings);
}

static void read_all(char *into, size_t length)
{
	while (length) {
		ssize_t got = read(REQUESTS, into, length);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			_exit(0); /* the keeper is gone */
		into += got;
		length -= (size_t)got;
	}
}

static void serve(void)
{
	char *frame = NULL;
	size_t room = 0;
	for (;;) {
		uint32_t head[3];
		read_all((char *)head, sizeof head);
		if (head[0] == 0 || head[0] > FRAME_MAX || head[1] > FRAME_MAX || head[2] > FRAME_MAX)
			_exit(1);
		if (head[0] > room) {
			room = head[0] < 65536 ? 65536 : head[0];
			free(frame);
			frame = malloc(room);
			if (!frame)
				_exit(1);
		}
		read_all(frame, head[0]);
		start(frame, head[0], head[1], head[2]);
	}
}

int main(int count, char **argument)
{
	if (count > 2 && !strcmp(argument[1], "--keeper")) {
		prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
		execv(argument[2], argument + 2);
		return CANNOT_RUN;
	}
	if (count > 1 && *argument[1])
		write_to("/proc/self/oom_score_adj", argument[1], "reset");
	if (fcntl(REQUESTS, F_SETFD, FD_CLOEXEC) < 0 || fcntl(REPLIES, F_SETFD, FD_CLOEXEC) < 0)
		return 2;
	serve();
}
