/* The least a job can cost: N times /bin/true by posix_spawn, K at a time, waited for.  bare N K */
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

extern char **environ;

int main(int count, char **words)
{
    if (count != 3) {
        fprintf(stderr, "usage: bare N K\n");
        return 2;
    }
    long to_start = atol(words[1]), at_once = atol(words[2]), running = 0;
    char *command[] = {"/bin/true", NULL};
    while (to_start > 0 || running > 0) {
        while (to_start > 0 && running < at_once) {
            pid_t pid;
            if (posix_spawn(&pid, command[0], NULL, NULL, command, environ) != 0)
                return 1;
            to_start--;
            running++;
        }
        int status;
        if (wait(&status) < 0 || status != 0)
            return 1;
        running--;
    }
    return 0;
}
