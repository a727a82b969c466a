/* Stands between a program and the disk of one folder (LD_PRELOAD): writes fail, tear or are slow, and the power goes.
 *
 * FAULTY_FOLDER: files below it are meant. FAULT: what happens; FAULT_AT: at which write from the start, FAULT_FOR: to how many.
 *   full, eio, sync-eio (of fsync), slow; power (all that was not synchronised is lost in part), torn (half of a write as well).
 * LYING=1: fsync says that it has been done and has not. Then power takes what was written since the start.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct undo { struct undo *before; int fd; ino_t inode; off_t at, size; size_t count; char old[]; };

static struct undo *undone;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long writes;
static unsigned chance;

static int concerned(int fd) {
    const char *folder = getenv("FAULTY_FOLDER");
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (!folder || length < 0) return 0;
    path[length] = 0;
    return !strncmp(path, folder, strlen(folder)) && !strstr(path, "-shm");
}

static int is(const char *fault) { const char *set = getenv("FAULT"); return set && !strcmp(set, fault); }
static long number(const char *name, long otherwise) { const char *set = getenv(name); return set ? atol(set) : otherwise; }
static int due(void) { long at = number("FAULT_AT", 0); return writes >= at && writes < at + number("FAULT_FOR", 1); }

static ssize_t really_write(int fd, const void *from, size_t count, off_t at) {
    static ssize_t (*real)(int, const void *, size_t, off_t);
    if (!real) real = dlsym(RTLD_NEXT, "pwrite64");
    return real(fd, from, count, at);
}

static int really_truncate(int fd, off_t size) {
    static int (*real)(int, off_t);
    if (!real) real = dlsym(RTLD_NEXT, "ftruncate64");
    return real(fd, size);
}

static void remember(int fd, off_t at, size_t count) {
    struct stat seen;
    if (fstat(fd, &seen)) return;
    struct undo *one = malloc(sizeof *one + count);
    *one = (struct undo){undone, dup(fd), seen.st_ino, at, seen.st_size, count};
    ssize_t got = pread(fd, one->old, count, at);
    if (got < 0) got = 0;
    memset(one->old + got, 0, count - got);
    undone = one;
}

static void power_off(void) {
    /* A disk writes what is not synchronised in any order, or not at all. The newest is undone first. */
    for (struct undo *one = undone; one; one = one->before)
        if (rand_r(&chance) % 4) {
            really_write(one->fd, one->old, one->count, one->at);
            struct stat now;
            if (!fstat(one->fd, &now) && now.st_size > one->size && one->at + (off_t)one->count > one->size)
                really_truncate(one->fd, one->size);
        }
    kill(getpid(), SIGKILL);
    pause();
}

static ssize_t faulty_write(int fd, const void *from, size_t count, off_t at) {
    pthread_mutex_lock(&lock);
    ssize_t done = -1;
    if (!writes) chance = (unsigned)number("FAULT_SEED", 1);
    writes++;
    if (due() && is("full")) errno = ENOSPC;
    else if (due() && is("eio")) errno = EIO;
    else {
        if (due() && is("slow")) nanosleep(&(struct timespec){0, 20000000}, 0);
        int last = due() && (is("power") || is("torn"));
        if (is("power") || is("torn")) remember(fd, at, count);
        if (last && is("torn")) really_write(fd, from, count / 2, at);
        if (last) power_off();
        done = really_write(fd, from, count, at);
    }
    pthread_mutex_unlock(&lock);
    return done;
}

static int faulty_sync(int fd, const char *name) {
    int (*real)(int) = dlsym(RTLD_NEXT, name);
    if (!concerned(fd)) return real(fd);
    if (number("LYING", 0)) return 0;
    pthread_mutex_lock(&lock);
    int failed = due() && is("sync-eio");
    struct stat seen;
    if (!failed && !fstat(fd, &seen))
        for (struct undo **at = &undone; *at;) {
            struct undo *one = *at;
            if (one->inode != seen.st_ino) { at = &one->before; continue; }
            *at = one->before;
            close(one->fd);
            free(one);
        }
    pthread_mutex_unlock(&lock);
    if (failed) { errno = EIO; return -1; }
    return real(fd);
}

ssize_t pwrite64(int fd, const void *from, size_t count, off_t at) {
    return concerned(fd) ? faulty_write(fd, from, count, at) : really_write(fd, from, count, at);
}
ssize_t pwrite(int fd, const void *from, size_t count, off_t at) { return pwrite64(fd, from, count, at); }
int fsync(int fd) { return faulty_sync(fd, "fsync"); }
int fdatasync(int fd) { return faulty_sync(fd, "fdatasync"); }
