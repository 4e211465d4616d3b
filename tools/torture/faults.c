/* Counts the calls by which a process reads and changes files below one folder, writes them down, and at the
 * Nth of them kills the process or makes the call fail. Loaded with LD_PRELOAD; see faults.py, which lays out the
 * same structures.
 *
 * The control block is a file that is mapped and shared, so that whoever set it up can read what happened after
 * a SIGKILL. Its path comes in TORTURE_CONTROL. Nothing is counted while `armed` is 0.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind { /* the order is that of faults.py */
    CREATE, WRITE, TRUNCATE, RENAME, LINK, UNLINK, MKDIR, RMDIR, FSYNC, SYNCFS, UTIMES, CHMOD, CHOWN, COPY, CLONE,
    SETXATTR, ALLOCATE, SYMLINK, MKNOD,
    OPEN, STAT, READ, LISTDIR, GETXATTR, LOCK, STATVFS, ACCESS, READLINK, OPENWRITE,
};

enum mode { RECORD, KILL_BEFORE, KILL_AFTER, KILL_TORN, FAIL_ONCE, FAIL_FOREVER, SHORT_ONCE, SHORT_FOREVER,
            SHORT_THEN_FAIL, FAIL_THRICE, PAUSE };

enum { PATH_BYTES = 200, ENTRIES = 16384, MAGIC = 0x746f7274 };

struct entry {
    uint32_t kind;
    int32_t error;      /* 0, or the errno that the caller saw */
    uint64_t device;
    uint64_t inode;     /* of the file before the call; of a rename: the source */
    int64_t amount;     /* bytes written or read, new size */
    uint32_t number;    /* which of the counted calls, from 1; 0 if not counted */
    uint32_t injected;  /* 1: the error is ours */
    char path[PATH_BYTES];
    char target[PATH_BYTES];
};

struct control {
    uint32_t magic;
    uint32_t entry_bytes;
    atomic_uint armed;
    uint32_t mode;
    uint32_t number;    /* the call at which it happens, from 1 */
    int32_t error;
    uint64_t counted;   /* kinds that are counted, one bit each */
    uint64_t failing;   /* kinds that go on failing afterwards */
    atomic_uint count;
    atomic_uint logged;
    atomic_uint happened;
    uint32_t spare;
    char root[512];
    char other[512];    /* a second folder, or empty */
    struct entry entries[ENTRIES];
};

static struct control *control;
static size_t root_bytes;
static __thread int inside;

static long (*real_syscall)(long, ...);

__attribute__((constructor)) static void begin_life(void) {
    real_syscall = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    const char *name = getenv("TORTURE_CONTROL");
    if (!name) return;
    int fd = (int)real_syscall(SYS_openat, AT_FDCWD, name, O_RDWR | O_CLOEXEC, 0);
    if (fd < 0) return;
    struct stat found;
    if (real_syscall(SYS_fstat, fd, &found) < 0 || found.st_size != sizeof(struct control)) { real_syscall(SYS_close, fd); return; }
    void *place = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    real_syscall(SYS_close, fd);
    if (place == MAP_FAILED) return;
    control = place;
    if (control->magic != MAGIC || control->entry_bytes != sizeof(struct entry)) control = NULL;
}

#define REAL(name) ({ \
    static __typeof__(&name) found; \
    if (!found) found = (__typeof__(&name))dlsym(RTLD_NEXT, #name); \
    found; })

/* -- where a call goes -------------------------------------------------------------------------------------- */

static void of_descriptor(int fd, char *out, size_t size) {
    char link[40];
    if (fd == AT_FDCWD) {
        if (real_syscall(SYS_getcwd, out, size) < 0) out[0] = 0;
        return;
    }
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    long got = real_syscall(SYS_readlinkat, AT_FDCWD, link, out, size - 1);
    out[got > 0 ? got : 0] = 0;
}

static void of_path(int folder, const char *path, char *out, size_t size) {
    out[0] = 0;
    if (!path) { of_descriptor(folder, out, size); return; }
    if (!strncmp(path, "/proc/self/fd/", 14)) { of_descriptor(atoi(path + 14), out, size); return; }
    if (path[0] == '/') { snprintf(out, size, "%s", path); return; }
    of_descriptor(folder, out, size);
    if (!path[0]) return;
    size_t used = strlen(out);
    if (used == 1 && out[0] == '/') used = 0;
    if (used + 1 < size) snprintf(out + used, size - used, "/%s", path);
}

static int below_one(const char *path, const char *root) {
    root_bytes = strlen(root);
    return root_bytes && !strncmp(path, root, root_bytes) &&
           (path[root_bytes] == '/' || !path[root_bytes] || path[root_bytes] == ' ');
}

static int below(const char *path) { return below_one(path, control->root) || below_one(path, control->other); }

static void keep_name(char *out, const char *path) {
    /* below the second folder the whole path is kept: the first is where names are relative to */
    int inside_root = below_one(path, control->root);
    const char *shown = inside_root ? path + root_bytes : path;
    while (inside_root && *shown == '/') shown++;
    snprintf(out, PATH_BYTES, "%s", *shown ? shown : ".");
}

/* -- what happens at a call ----------------------------------------------------------------------------------- */

struct seen {
    struct entry *entry;
    int kill_after;
    int torn;   /* only a part of it is done */
    int fail;   /* errno, the call is not made */
};

static void die(void) { real_syscall(SYS_kill, real_syscall(SYS_getpid), SIGKILL); for (;;) pause(); }

/* Sleeps until whoever started it has done what it wants to do in between. */
static void rest(void) { real_syscall(SYS_kill, real_syscall(SYS_getpid), SIGSTOP); }

/* Whether the call counts; fills `seen`. */
static int begin(struct seen *seen, enum kind kind, int folder, const char *path, int folder2, const char *path2,
                 int two) {
    char one[PATH_MAX], other[PATH_MAX];
    if (!control || inside || !atomic_load(&control->armed)) return 0;
    int kept = errno;
    inside = 1;
    of_path(folder, path, one, sizeof one);
    other[0] = 0;
    if (two) of_path(folder2, path2, other, sizeof other);
    int counts = below(one) || (two && below(other));
    if (counts) {
        unsigned place = atomic_fetch_add(&control->logged, 1);
        static struct entry spill;
        struct entry *entry = place < ENTRIES ? &control->entries[place] : &spill;
        struct stat found;
        long status = path ? real_syscall(SYS_newfstatat, folder, path, &found, path[0] ? AT_SYMLINK_NOFOLLOW : AT_EMPTY_PATH)
                           : real_syscall(SYS_fstat, folder, &found);
        entry->kind = kind;
        entry->error = 0;
        entry->device = status == 0 ? found.st_dev : 0;
        entry->inode = status == 0 ? found.st_ino : 0;
        entry->amount = 0;
        entry->number = 0;
        entry->injected = 0;
        keep_name(entry->path, one);
        keep_name(entry->target, two ? other : "");
        if (!two) entry->target[0] = 0;
        *seen = (struct seen){.entry = entry};
        uint64_t bit = 1ull << kind;
        int now = 0, later = 0;
        if (control->counted & bit) {
            entry->number = atomic_fetch_add(&control->count, 1) + 1;
            now = entry->number == control->number;
            later = entry->number > control->number && control->number;
        }
        later = (later || (atomic_load(&control->happened) && !now)) && (control->failing & bit);
        int can_be_short = kind == WRITE || kind == READ || kind == COPY;
        switch (control->mode) {
        case KILL_BEFORE: if (now) { atomic_store(&control->happened, 1); die(); } break;
        case PAUSE: if (now) { atomic_store(&control->happened, 1); rest(); } break;
        case KILL_AFTER: seen->kill_after = now; break;
        case KILL_TORN: seen->kill_after = now; seen->torn = now && can_be_short; break;
        case FAIL_ONCE: if (now) seen->fail = control->error; break;
        case FAIL_FOREVER: if (now || later) seen->fail = control->error; break;
        case FAIL_THRICE:
            if (now || (later && atomic_load(&control->happened) < 3)) seen->fail = control->error;
            break;
        case SHORT_ONCE: seen->torn = now && can_be_short; break;
        case SHORT_FOREVER: seen->torn = (now || later) && can_be_short; break;
        case SHORT_THEN_FAIL:
            if (now && can_be_short) seen->torn = 1; else if (now || later) seen->fail = control->error;
            break;
        default: break;
        }
        if (seen->fail) {
            entry->error = seen->fail;
            entry->injected = 1;
        }
        if (seen->torn) entry->injected = 1;
        if (seen->fail || seen->torn || seen->kill_after) atomic_fetch_add(&control->happened, 1);
    }
    inside = 0;
    errno = kept;
    return counts;
}

static long finish(struct seen *seen, long result, int failed) {
    seen->entry->error = failed ? errno : 0;
    seen->entry->amount = result;
    if (seen->kill_after) die();
    return result;
}

static int is_short(struct seen *seen, size_t count) { return seen->torn && count > 1; }

#define AROUND(KIND, FOLDER, PATH, FOLDER2, PATH2, TWO, BAD, CALL) { \
    struct seen seen; \
    if (!begin(&seen, KIND, FOLDER, PATH, FOLDER2, PATH2, TWO)) return CALL; \
    if (seen.fail) { errno = seen.fail; return BAD; } \
    __typeof__(CALL) result = CALL; \
    finish(&seen, (long)result, result == (__typeof__(CALL))BAD); \
    return result; }
#define ON_PATH(KIND, FOLDER, PATH, CALL) AROUND(KIND, FOLDER, PATH, 0, NULL, 0, -1, CALL)
#define ON_FD(KIND, FD, CALL) AROUND(KIND, FD, NULL, 0, NULL, 0, -1, CALL)
#define ON_TWO(KIND, FOLDER, PATH, FOLDER2, PATH2, CALL) AROUND(KIND, FOLDER, PATH, FOLDER2, PATH2, 1, -1, CALL)

/* -- opening ------------------------------------------------------------------------------------------------- */

static enum kind kind_of_open(int flags) {
    if ((flags & (O_CREAT | O_TRUNC)) || (flags & O_TMPFILE) == O_TMPFILE) return CREATE;
    return (flags & O_ACCMODE) == O_RDONLY ? OPEN : OPENWRITE;
}

#define MODE_OF(flags) ({ mode_t given = 0; \
    if (((flags) & O_CREAT) || ((flags) & O_TMPFILE) == O_TMPFILE) { \
        va_list more; va_start(more, flags); given = va_arg(more, mode_t); va_end(more); } given; })

int open(const char *path, int flags, ...) {
    mode_t mode = MODE_OF(flags);
    ON_PATH(kind_of_open(flags), AT_FDCWD, path, REAL(open)(path, flags, mode))
}
int open64(const char *path, int flags, ...) {
    mode_t mode = MODE_OF(flags);
    ON_PATH(kind_of_open(flags), AT_FDCWD, path, REAL(open64)(path, flags, mode))
}
int openat(int folder, const char *path, int flags, ...) {
    mode_t mode = MODE_OF(flags);
    ON_PATH(kind_of_open(flags), folder, path, REAL(openat)(folder, path, flags, mode))
}
int openat64(int folder, const char *path, int flags, ...) {
    mode_t mode = MODE_OF(flags);
    ON_PATH(kind_of_open(flags), folder, path, REAL(openat64)(folder, path, flags, mode))
}
int creat(const char *path, mode_t mode) { ON_PATH(CREATE, AT_FDCWD, path, REAL(creat)(path, mode)) }
int creat64(const char *path, mode_t mode) { ON_PATH(CREATE, AT_FDCWD, path, REAL(creat64)(path, mode)) }
static FILE *fopened(const char *path, const char *mode, FILE *(*call)(const char *, const char *)) {
    enum kind kind = strchr(mode, 'w') || strchr(mode, 'a') ? CREATE : strchr(mode, '+') ? OPENWRITE : OPEN;
    struct seen seen;
    if (!begin(&seen, kind, AT_FDCWD, path, 0, NULL, 0)) return call(path, mode);
    if (seen.fail) { errno = seen.fail; return NULL; }
    FILE *result = call(path, mode);
    finish(&seen, result ? 0 : -1, !result);
    return result;
}
FILE *fopen(const char *path, const char *mode) { return fopened(path, mode, REAL(fopen)); }
FILE *fopen64(const char *path, const char *mode) { return fopened(path, mode, REAL(fopen64)); }

/* -- names --------------------------------------------------------------------------------------------------- */

int rename(const char *a, const char *b) { ON_TWO(RENAME, AT_FDCWD, a, AT_FDCWD, b, REAL(rename)(a, b)) }
int renameat(int f, const char *a, int g, const char *b) { ON_TWO(RENAME, f, a, g, b, REAL(renameat)(f, a, g, b)) }
int renameat2(int f, const char *a, int g, const char *b, unsigned flags) {
    ON_TWO(RENAME, f, a, g, b, REAL(renameat2)(f, a, g, b, flags))
}
int link(const char *a, const char *b) { ON_TWO(LINK, AT_FDCWD, a, AT_FDCWD, b, REAL(link)(a, b)) }
int linkat(int f, const char *a, int g, const char *b, int flags) {
    ON_TWO(LINK, f, a, g, b, REAL(linkat)(f, a, g, b, flags))
}
int symlink(const char *to, const char *path) { ON_PATH(SYMLINK, AT_FDCWD, path, REAL(symlink)(to, path)) }
int symlinkat(const char *to, int f, const char *path) { ON_PATH(SYMLINK, f, path, REAL(symlinkat)(to, f, path)) }
int unlink(const char *path) { ON_PATH(UNLINK, AT_FDCWD, path, REAL(unlink)(path)) }
int unlinkat(int f, const char *path, int flags) {
    ON_PATH(flags & AT_REMOVEDIR ? RMDIR : UNLINK, f, path, REAL(unlinkat)(f, path, flags))
}
int remove(const char *path) { ON_PATH(UNLINK, AT_FDCWD, path, REAL(remove)(path)) }
int mkdir(const char *path, mode_t mode) { ON_PATH(MKDIR, AT_FDCWD, path, REAL(mkdir)(path, mode)) }
int mkdirat(int f, const char *path, mode_t mode) { ON_PATH(MKDIR, f, path, REAL(mkdirat)(f, path, mode)) }
int rmdir(const char *path) { ON_PATH(RMDIR, AT_FDCWD, path, REAL(rmdir)(path)) }
int mknod(const char *path, mode_t mode, dev_t dev) { ON_PATH(MKNOD, AT_FDCWD, path, REAL(mknod)(path, mode, dev)) }
int mknodat(int f, const char *path, mode_t mode, dev_t dev) { ON_PATH(MKNOD, f, path, REAL(mknodat)(f, path, mode, dev)) }

/* -- bytes --------------------------------------------------------------------------------------------------- */

#define TRANSFER(KIND, FD, COUNT, CALL) \
    struct seen seen; \
    if (!begin(&seen, KIND, FD, NULL, 0, NULL, 0)) return CALL; \
    if (seen.fail) { errno = seen.fail; return -1; } \
    if (is_short(&seen, COUNT)) COUNT = COUNT / 2; \
    ssize_t result = CALL; \
    finish(&seen, result, result < 0); \
    return result;

ssize_t write(int fd, const void *data, size_t n) { TRANSFER(WRITE, fd, n, REAL(write)(fd, data, n)) }
ssize_t pwrite(int fd, const void *data, size_t n, off_t at) { TRANSFER(WRITE, fd, n, REAL(pwrite)(fd, data, n, at)) }
ssize_t pwrite64(int fd, const void *data, size_t n, off64_t at) {
    TRANSFER(WRITE, fd, n, REAL(pwrite64)(fd, data, n, at))
}
ssize_t read(int fd, void *data, size_t n) { TRANSFER(READ, fd, n, REAL(read)(fd, data, n)) }
ssize_t pread(int fd, void *data, size_t n, off_t at) { TRANSFER(READ, fd, n, REAL(pread)(fd, data, n, at)) }
ssize_t pread64(int fd, void *data, size_t n, off64_t at) { TRANSFER(READ, fd, n, REAL(pread64)(fd, data, n, at)) }

/* Half of the bytes of a vector, as vectors in `out`; gives how many of them. */
static int halved(const struct iovec *all, int count, struct iovec *out) {
    size_t total = 0;
    for (int i = 0; i < count; i++) total += all[i].iov_len;
    if (total < 2) { memcpy(out, all, sizeof *all * (size_t)count); return count; }
    size_t left = total / 2;
    int used = 0;
    for (int i = 0; i < count && left; i++) {
        out[used] = all[i];
        if (out[used].iov_len > left) out[used].iov_len = left;
        left -= out[used++].iov_len;
    }
    return used;
}

#define TRANSFER_V(KIND, FD, CALL) \
    struct seen seen; \
    struct iovec part[1024]; \
    if (!begin(&seen, KIND, FD, NULL, 0, NULL, 0)) return CALL; \
    if (seen.fail) { errno = seen.fail; return -1; } \
    if (seen.torn && n <= 1024) { n = halved(iov, n, part); iov = part; } \
    ssize_t result = CALL; \
    finish(&seen, result, result < 0); \
    return result;

ssize_t writev(int fd, const struct iovec *iov, int n) { TRANSFER_V(WRITE, fd, REAL(writev)(fd, iov, n)) }
ssize_t pwritev(int fd, const struct iovec *iov, int n, off_t at) {
    TRANSFER_V(WRITE, fd, REAL(pwritev)(fd, iov, n, at))
}
ssize_t pwritev64(int fd, const struct iovec *iov, int n, off64_t at) {
    TRANSFER_V(WRITE, fd, REAL(pwritev64)(fd, iov, n, at))
}
ssize_t pwritev2(int fd, const struct iovec *iov, int n, off_t at, int flags) {
    TRANSFER_V(WRITE, fd, REAL(pwritev2)(fd, iov, n, at, flags))
}
ssize_t pwritev64v2(int fd, const struct iovec *iov, int n, off64_t at, int flags) {
    TRANSFER_V(WRITE, fd, REAL(pwritev64v2)(fd, iov, n, at, flags))
}
ssize_t readv(int fd, const struct iovec *iov, int n) { TRANSFER_V(READ, fd, REAL(readv)(fd, iov, n)) }
ssize_t preadv(int fd, const struct iovec *iov, int n, off_t at) { TRANSFER_V(READ, fd, REAL(preadv)(fd, iov, n, at)) }
ssize_t preadv64(int fd, const struct iovec *iov, int n, off64_t at) {
    TRANSFER_V(READ, fd, REAL(preadv64)(fd, iov, n, at))
}
ssize_t preadv64v2(int fd, const struct iovec *iov, int n, off64_t at, int flags) {
    TRANSFER_V(READ, fd, REAL(preadv64v2)(fd, iov, n, at, flags))
}

ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t n, unsigned flags) {
    TRANSFER(COPY, out, n, REAL(copy_file_range)(in, from, out, to, n, flags))
}
ssize_t sendfile(int out, int in, off_t *from, size_t n) { TRANSFER(COPY, out, n, REAL(sendfile)(out, in, from, n)) }
ssize_t sendfile64(int out, int in, off64_t *from, size_t n) {
    TRANSFER(COPY, out, n, REAL(sendfile64)(out, in, from, n))
}
ssize_t splice(int in, off64_t *from, int out, off64_t *to, size_t n, unsigned flags) {
    TRANSFER(COPY, out, n, REAL(splice)(in, from, out, to, n, flags))
}
int ioctl(int fd, unsigned long request, ...) {
    va_list more;
    va_start(more, request);
    void *given = va_arg(more, void *);
    va_end(more);
    if (request != 0x40049409 && request != 0x4020940d) return REAL(ioctl)(fd, request, given); /* FICLONE, FICLONERANGE */
    ON_FD(CLONE, fd, REAL(ioctl)(fd, request, given))
}

/* What is written down of these is the new size. */
#define SIZED(CALL) \
    struct seen seen; \
    if (!begin(&seen, TRUNCATE, fd, NULL, 0, NULL, 0)) return CALL; \
    if (seen.fail) { errno = seen.fail; return -1; } \
    int result = CALL; \
    finish(&seen, result < 0 ? -1 : size, result < 0); \
    return result;
int ftruncate(int fd, off_t size) { SIZED(REAL(ftruncate)(fd, size)) }
int ftruncate64(int fd, off64_t size) { SIZED(REAL(ftruncate64)(fd, size)) }
int truncate(const char *path, off_t size) { ON_PATH(TRUNCATE, AT_FDCWD, path, REAL(truncate)(path, size)) }
int truncate64(const char *path, off64_t size) { ON_PATH(TRUNCATE, AT_FDCWD, path, REAL(truncate64)(path, size)) }
int fallocate(int fd, int mode, off_t at, off_t n) { ON_FD(ALLOCATE, fd, REAL(fallocate)(fd, mode, at, n)) }
int fallocate64(int fd, int mode, off64_t at, off64_t n) { ON_FD(ALLOCATE, fd, REAL(fallocate64)(fd, mode, at, n)) }
/* These give the error back instead of setting errno. */
#define GIVEN_BACK(CALL) \
    struct seen seen; \
    if (!begin(&seen, ALLOCATE, fd, NULL, 0, NULL, 0)) return CALL; \
    if (seen.fail) return seen.fail; \
    int result = CALL; \
    errno = result; \
    finish(&seen, result, result != 0); \
    return result;
int posix_fallocate(int fd, off_t at, off_t n) { GIVEN_BACK(REAL(posix_fallocate)(fd, at, n)) }
int posix_fallocate64(int fd, off64_t at, off64_t n) { GIVEN_BACK(REAL(posix_fallocate64)(fd, at, n)) }

/* -- making durable ------------------------------------------------------------------------------------------ */

int fsync(int fd) { ON_FD(FSYNC, fd, REAL(fsync)(fd)) }
int fdatasync(int fd) { ON_FD(FSYNC, fd, REAL(fdatasync)(fd)) }
int syncfs(int fd) { ON_FD(SYNCFS, fd, REAL(syncfs)(fd)) }

/* -- what a file is like ------------------------------------------------------------------------------------- */

int utimensat(int f, const char *path, const struct timespec t[2], int flags) {
    ON_PATH(UTIMES, f, path, REAL(utimensat)(f, path, t, flags))
}
int futimens(int fd, const struct timespec t[2]) { ON_FD(UTIMES, fd, REAL(futimens)(fd, t)) }
int chmod(const char *path, mode_t mode) { ON_PATH(CHMOD, AT_FDCWD, path, REAL(chmod)(path, mode)) }
int fchmod(int fd, mode_t mode) { ON_FD(CHMOD, fd, REAL(fchmod)(fd, mode)) }
int fchmodat(int f, const char *path, mode_t mode, int flags) {
    ON_PATH(CHMOD, f, path, REAL(fchmodat)(f, path, mode, flags))
}
int chown(const char *path, uid_t u, gid_t g) { ON_PATH(CHOWN, AT_FDCWD, path, REAL(chown)(path, u, g)) }
int lchown(const char *path, uid_t u, gid_t g) { ON_PATH(CHOWN, AT_FDCWD, path, REAL(lchown)(path, u, g)) }
int fchown(int fd, uid_t u, gid_t g) { ON_FD(CHOWN, fd, REAL(fchown)(fd, u, g)) }
int fchownat(int f, const char *path, uid_t u, gid_t g, int flags) {
    ON_PATH(CHOWN, f, path, REAL(fchownat)(f, path, u, g, flags))
}
int setxattr(const char *path, const char *name, const void *value, size_t n, int flags) {
    ON_PATH(SETXATTR, AT_FDCWD, path, REAL(setxattr)(path, name, value, n, flags))
}
int lsetxattr(const char *path, const char *name, const void *value, size_t n, int flags) {
    ON_PATH(SETXATTR, AT_FDCWD, path, REAL(lsetxattr)(path, name, value, n, flags))
}
int fsetxattr(int fd, const char *name, const void *value, size_t n, int flags) {
    ON_FD(SETXATTR, fd, REAL(fsetxattr)(fd, name, value, n, flags))
}
int removexattr(const char *path, const char *name) {
    ON_PATH(SETXATTR, AT_FDCWD, path, REAL(removexattr)(path, name))
}
int lremovexattr(const char *path, const char *name) {
    ON_PATH(SETXATTR, AT_FDCWD, path, REAL(lremovexattr)(path, name))
}
int fremovexattr(int fd, const char *name) { ON_FD(SETXATTR, fd, REAL(fremovexattr)(fd, name)) }

/* -- looking ------------------------------------------------------------------------------------------------- */

#define LOOKS(NAME, STRUCT) \
    int NAME(const char *path, struct STRUCT *out) { ON_PATH(STAT, AT_FDCWD, path, REAL(NAME)(path, out)) }
LOOKS(stat, stat)
LOOKS(stat64, stat64)
LOOKS(lstat, stat)
LOOKS(lstat64, stat64)
int fstat(int fd, struct stat *out) { ON_FD(STAT, fd, REAL(fstat)(fd, out)) }
int fstat64(int fd, struct stat64 *out) { ON_FD(STAT, fd, REAL(fstat64)(fd, out)) }
int fstatat(int f, const char *path, struct stat *out, int flags) {
    ON_PATH(STAT, f, path, REAL(fstatat)(f, path, out, flags))
}
int fstatat64(int f, const char *path, struct stat64 *out, int flags) {
    ON_PATH(STAT, f, path, REAL(fstatat64)(f, path, out, flags))
}
int statx(int f, const char *path, int flags, unsigned mask, struct statx *out) {
    ON_PATH(STAT, f, path, REAL(statx)(f, path, flags, mask, out))
}

struct __dirstream;
struct __dirstream *opendir(const char *path) {
    static struct __dirstream *(*call)(const char *);
    if (!call) call = (struct __dirstream * (*)(const char *)) dlsym(RTLD_NEXT, "opendir");
    AROUND(LISTDIR, AT_FDCWD, path, 0, NULL, 0, NULL, call(path))
}
struct __dirstream *fdopendir(int fd) {
    static struct __dirstream *(*call)(int);
    if (!call) call = (struct __dirstream * (*)(int)) dlsym(RTLD_NEXT, "fdopendir");
    AROUND(LISTDIR, fd, NULL, 0, NULL, 0, NULL, call(fd))
}

ssize_t getxattr(const char *path, const char *name, void *out, size_t n) {
    ON_PATH(GETXATTR, AT_FDCWD, path, REAL(getxattr)(path, name, out, n))
}
ssize_t lgetxattr(const char *path, const char *name, void *out, size_t n) {
    ON_PATH(GETXATTR, AT_FDCWD, path, REAL(lgetxattr)(path, name, out, n))
}
ssize_t fgetxattr(int fd, const char *name, void *out, size_t n) {
    ON_FD(GETXATTR, fd, REAL(fgetxattr)(fd, name, out, n))
}
ssize_t listxattr(const char *path, char *out, size_t n) {
    ON_PATH(GETXATTR, AT_FDCWD, path, REAL(listxattr)(path, out, n))
}
ssize_t llistxattr(const char *path, char *out, size_t n) {
    ON_PATH(GETXATTR, AT_FDCWD, path, REAL(llistxattr)(path, out, n))
}
ssize_t flistxattr(int fd, char *out, size_t n) { ON_FD(GETXATTR, fd, REAL(flistxattr)(fd, out, n)) }

struct statvfs;
struct statvfs64;
int statvfs(const char *path, struct statvfs *out) { ON_PATH(STATVFS, AT_FDCWD, path, REAL(statvfs)(path, out)) }
int statvfs64(const char *path, struct statvfs64 *out) { ON_PATH(STATVFS, AT_FDCWD, path, REAL(statvfs64)(path, out)) }
int fstatvfs(int fd, struct statvfs *out) { ON_FD(STATVFS, fd, REAL(fstatvfs)(fd, out)) }
int fstatvfs64(int fd, struct statvfs64 *out) { ON_FD(STATVFS, fd, REAL(fstatvfs64)(fd, out)) }
int access(const char *path, int mode) { ON_PATH(ACCESS, AT_FDCWD, path, REAL(access)(path, mode)) }
int faccessat(int f, const char *path, int mode, int flags) {
    ON_PATH(ACCESS, f, path, REAL(faccessat)(f, path, mode, flags))
}
ssize_t readlink(const char *path, char *out, size_t n) {
    ON_PATH(READLINK, AT_FDCWD, path, REAL(readlink)(path, out, n))
}
ssize_t readlinkat(int f, const char *path, char *out, size_t n) {
    ON_PATH(READLINK, f, path, REAL(readlinkat)(f, path, out, n))
}

#define LOCKING(NAME) \
    int NAME(int fd, int command, ...) { \
        va_list more; \
        va_start(more, command); \
        void *given = va_arg(more, void *); \
        va_end(more); \
        int locks = command == F_OFD_SETLK || command == F_OFD_SETLKW || command == F_SETLK || command == F_SETLKW || \
                    command == F_OFD_GETLK; \
        if (!locks) return REAL(NAME)(fd, command, given); \
        ON_FD(LOCK, fd, REAL(NAME)(fd, command, given)) \
    }
LOCKING(fcntl)
LOCKING(fcntl64)

/* -- calls by number: openat2 has no function of its own in the C library ------------------------------------ */

struct how { uint64_t flags, mode, resolve; };

long syscall(long number, ...) {
    va_list more;
    va_start(more, number);
    long a = va_arg(more, long), b = va_arg(more, long), c = va_arg(more, long), d = va_arg(more, long),
         e = va_arg(more, long), f = va_arg(more, long);
    va_end(more);
    if (!real_syscall) real_syscall = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    switch (number) {
    case SYS_openat2: {
        int flags = c ? (int)((const struct how *)c)->flags : 0;
        ON_PATH(kind_of_open(flags), (int)a, (const char *)b, real_syscall(number, a, b, c, d, e, f))
    }
    case SYS_openat: ON_PATH(kind_of_open((int)c), (int)a, (const char *)b, real_syscall(number, a, b, c, d, e, f))
    case SYS_renameat2:
        ON_TWO(RENAME, (int)a, (const char *)b, (int)c, (const char *)d, real_syscall(number, a, b, c, d, e, f))
    case SYS_linkat:
        ON_TWO(LINK, (int)a, (const char *)b, (int)c, (const char *)d, real_syscall(number, a, b, c, d, e, f))
    case SYS_fsync:
    case SYS_fdatasync: ON_FD(FSYNC, (int)a, real_syscall(number, a, b, c, d, e, f))
    case SYS_syncfs: ON_FD(SYNCFS, (int)a, real_syscall(number, a, b, c, d, e, f))
    case SYS_statx: ON_PATH(STAT, (int)a, (const char *)b, real_syscall(number, a, b, c, d, e, f))
    default: return real_syscall(number, a, b, c, d, e, f);
    }
}
