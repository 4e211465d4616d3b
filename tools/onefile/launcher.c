/* The beginning of dist/krepair: unpacks the rest of the file once, and starts the Python in it with its own loader and libc.
 *
 * Linked statically, so that it needs nothing of the host but its kernel. Behind it in the file, from LAUNCHER_BYTES on, is
 * the payload: an index of INDEX_BYTES ("mode size path" for each file, a line each), then the files one after the other, in
 * blocks of LZ4, each with its packed and its plain size before it. tools/onefile/pack.py writes it, and defines the macros.
 *
 * The folder holds programs. So only this user or root may be able to write it, it and all that is above it: what another
 * user could have put there is never started.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define REFUSED 13
#define UNREADABLE 15
#define UNWRITABLE 17
#define VARIABLE "KREPAIR_CACHE_DIR"
#define WHOLE_BYTES ((size_t)LAUNCHER_BYTES + (size_t)PAYLOAD_BYTES)

static const unsigned char *payload;

__attribute__((noreturn, format(printf, 2, 3))) static void end(int code, const char *format, ...) {
    va_list words;
    va_start(words, format);
    fputs("krepair: ", stderr);
    vfprintf(stderr, format, words);
    fputc('\n', stderr);
    exit(code);
}

/* SHA-256 by FIPS 180-4. */

static uint32_t turned(uint32_t word, int by) { return word >> by | word << (32 - by); }

static uint32_t big_endian(const unsigned char *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static const uint32_t ROUNDS[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01,
    0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc,
    0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08,
    0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static void add_block(uint32_t state[8], const unsigned char *block) {
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++) w[i] = big_endian(block + 4 * i);
    for (int i = 16; i < 64; i++) {
        uint32_t early = turned(w[i - 15], 7) ^ turned(w[i - 15], 18) ^ w[i - 15] >> 3;
        uint32_t late = turned(w[i - 2], 17) ^ turned(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + early + w[i - 7] + late;
    }
    memcpy(v, state, sizeof v);
    for (int i = 0; i < 64; i++) {
        uint32_t chosen = (v[4] & v[5]) ^ (~v[4] & v[6]);
        uint32_t major = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
        uint32_t one = v[7] + (turned(v[4], 6) ^ turned(v[4], 11) ^ turned(v[4], 25)) + chosen + ROUNDS[i] + w[i];
        uint32_t two = (turned(v[0], 2) ^ turned(v[0], 13) ^ turned(v[0], 22)) + major;
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += one;
        v[0] = one + two;
    }
    for (int i = 0; i < 8; i++) state[i] += v[i];
}

static int has_digest(const unsigned char *bytes, size_t size, const char *expected) {
    uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    unsigned char last[128] = {0};
    size_t whole = size / 64 * 64, rest = size - whole, padded = rest < 56 ? 64 : 128;
    for (size_t at = 0; at < whole; at += 64) add_block(state, bytes + at);
    memcpy(last, bytes + whole, rest);
    last[rest] = 0x80;
    for (int i = 0; i < 8; i++) last[padded - 1 - i] = (unsigned char)((uint64_t)size * 8 >> 8 * i);
    for (size_t at = 0; at < padded; at += 64) add_block(state, last + at);
    char hex[65];
    for (int i = 0; i < 8; i++) snprintf(hex + 8 * i, 9, "%08x", state[i]);
    return !strcmp(hex, expected);
}

/* One block of LZ4. Returns 0 if it is damaged; nothing is read or written outside of the two ranges. */

static int unpack_block(const unsigned char *in, size_t in_bytes, unsigned char *out, size_t out_bytes) {
    const unsigned char *in_end = in + in_bytes;
    unsigned char *start = out, *out_end = out + out_bytes;
    while (in < in_end) {
        unsigned token = *in++;
        size_t literals = token >> 4, matched = token & 15;
        if (literals == 15) {
            unsigned more;
            do {
                if (in >= in_end) return 0;
                literals += more = *in++;
            } while (more == 255);
        }
        if (literals > (size_t)(in_end - in) || literals > (size_t)(out_end - out)) return 0;
        memcpy(out, in, literals);
        in += literals, out += literals;
        if (in == in_end) break; /* the last sequence has literals only */
        if (in_end - in < 2) return 0;
        size_t back = in[0] | (size_t)in[1] << 8;
        in += 2;
        if (matched == 15) {
            unsigned more;
            do {
                if (in >= in_end) return 0;
                matched += more = *in++;
            } while (more == 255);
        }
        matched += 4;
        if (!back || back > (size_t)(out - start) || matched > (size_t)(out_end - out)) return 0;
        for (const unsigned char *from = out - back; matched; matched--) *out++ = *from++;
    }
    return out == out_end;
}

/* The index */

struct entry {
    mode_t mode;
    uint64_t bytes;
    char path[512];
};

static const unsigned char *next_entry(const unsigned char *at, struct entry *entry) {
    const unsigned char *index_end = payload + INDEX_BYTES, *line_end = memchr(at, '\n', (size_t)(index_end - at));
    char line[600];
    if (!line_end || (size_t)(line_end - at) >= sizeof line) return NULL;
    memcpy(line, at, (size_t)(line_end - at));
    line[line_end - at] = 0;
    unsigned mode;
    unsigned long long bytes;
    if (sscanf(line, "%o %llu %511s", &mode, &bytes, entry->path) != 3) return NULL;
    entry->mode = (mode_t)mode, entry->bytes = bytes;
    return line_end + 1;
}

static int only_ours(const struct stat *found) {
    return (found->st_uid == geteuid() || !found->st_uid) && !(found->st_mode & (S_IWGRP | S_IWOTH));
}

/* Whether every file is there with its size. What a cleaner of old temporary files took is unpacked again. */
static int is_whole(int folder) {
    const unsigned char *at = payload;
    while (at < payload + INDEX_BYTES) {
        struct entry entry;
        struct stat found;
        if (!(at = next_entry(at, &entry)) || fstatat(folder, entry.path, &found, AT_SYMLINK_NOFOLLOW)) return 0;
        if (!S_ISREG(found.st_mode) || (uint64_t)found.st_size != entry.bytes || !only_ours(&found)) return 0;
    }
    return 1;
}

static int open_whole(int base) {
    struct stat found;
    int folder = openat(base, NAME, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0) return -1;
    if (!fstat(folder, &found) && only_ours(&found) && is_whole(folder)) return folder;
    close(folder);
    return -1;
}

/* The place */

static char why[2 * PATH_MAX];

__attribute__((format(printf, 1, 2))) static int no(const char *format, ...) {
    va_list words;
    va_start(words, format);
    vsnprintf(why, sizeof why, format, words);
    return -1;
}

static unsigned long long megabytes(unsigned long long bytes) { return (bytes + 999999) / 1000000; }

/* Whether nobody else can put another folder in the place of this one: true of every folder above it, too. */
static int is_private(const char *path) {
    char real[PATH_MAX];
    if (!realpath(path, real)) return no("%s", strerror(errno)), 0;
    for (;;) {
        struct stat found;
        if (lstat(real, &found)) return no("%s", strerror(errno)), 0;
        /* Whoever owns the root itself can replace anything. */
        int own = found.st_uid == geteuid() || !found.st_uid || !real[1];
        if (!own || (found.st_mode & (S_IWGRP | S_IWOTH) && !(found.st_mode & S_ISVTX)))
            return no("it is not private: another user can write %s", real), 0;
        char *slash = strrchr(real, '/');
        if (slash == real && !real[1]) return 1;
        slash[slash == real] = 0;
    }
}

static int remove_tree(int parent, const char *name) {
    if (!unlinkat(parent, name, 0) || errno == ENOENT) return 0;
    int folder = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *listing = folder < 0 ? NULL : fdopendir(folder);
    if (!listing) return -1;
    for (struct dirent *one; (one = readdir(listing));)
        if (strcmp(one->d_name, ".") && strcmp(one->d_name, "..")) remove_tree(folder, one->d_name);
    closedir(listing);
    return unlinkat(parent, name, AT_REMOVEDIR);
}

/* What an unpacking that was killed left here. The lock is held, so nobody is at work. */
static void sweep(int base) {
    DIR *listing = fdopendir(openat(base, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!listing) return;
    for (struct dirent *one; (one = readdir(listing));)
        if (!strncmp(one->d_name, "new-", 4) || !strncmp(one->d_name, "old-", 4)) remove_tree(base, one->d_name);
    closedir(listing);
}

static int make_parents(int folder, char *path) {
    for (char *slash = path; (slash = strchr(slash, '/')); *slash++ = '/') {
        *slash = 0;
        if (mkdirat(folder, path, 0700) && errno != EEXIST) return -1;
    }
    return 0;
}

static int write_all(int file, const unsigned char *from, size_t bytes) {
    while (bytes) {
        ssize_t written = write(file, from, bytes);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return -1;
        from += written, bytes -= (size_t)written;
    }
    return 0;
}

static int unpack_files(int folder) {
    static unsigned char block[BLOCK_BYTES];
    const unsigned char *line = payload, *packed = payload + INDEX_BYTES, *packed_end = payload + PAYLOAD_BYTES;
    size_t have = 0, used = 0;
    while (line < payload + INDEX_BYTES) {
        struct entry entry;
        if (!(line = next_entry(line, &entry))) return errno = EINVAL, -1;
        if (make_parents(folder, entry.path)) return -1;
        int file = openat(folder, entry.path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (file < 0) return -1;
        while (entry.bytes) {
            if (used == have) {
                if (packed_end - packed < 8) return errno = EINVAL, -1;
                uint32_t sizes[2];
                memcpy(sizes, packed, sizeof sizes);
                packed += sizeof sizes;
                if (sizes[0] > (size_t)(packed_end - packed) || sizes[1] > BLOCK_BYTES || !sizes[1]) return errno = EINVAL, -1;
                if (!unpack_block(packed, sizes[0], block, sizes[1])) return errno = EINVAL, -1;
                packed += sizes[0], have = sizes[1], used = 0;
            }
            size_t part = entry.bytes < have - used ? (size_t)entry.bytes : have - used;
            if (write_all(file, block + used, part)) return -1;
            used += part, entry.bytes -= part;
        }
        if (fchmod(file, entry.mode) || close(file)) return -1;
    }
    return 0;
}

static int unpack(int base, const char *place) {
    char fresh[64], old[64];
    snprintf(fresh, sizeof fresh, "new-%ld", (long)getpid());
    snprintf(old, sizeof old, "old-%ld", (long)getpid());
    if (!has_digest(payload, PAYLOAD_BYTES, PAYLOAD_SHA256))
        end(UNREADABLE, "this file is damaged: its digest is not the one that it was made with; copy it again");
    fprintf(stderr, "krepair: unpacks %llu MB into %s, once\n", megabytes(UNPACKED_BYTES), place);
    int folder = mkdirat(base, fresh, 0700) ? -1 : openat(base, fresh, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0) return no("%s", strerror(errno));
    /* A rename must not be on the disk before the files are. */
    int done = unpack_files(folder) || syncfs(folder) ? -1 : 0;
    if (!done && renameat(base, fresh, base, NAME)) {
        remove_tree(base, old);
        done = renameat(base, NAME, base, old) || renameat(base, fresh, base, NAME) ? -1 : 0;
        remove_tree(base, old);
    }
    int error = errno;
    if (done) {
        remove_tree(base, fresh);
        close(folder);
        return no("%s", strerror(error));
    }
    return folder;
}

static int has_room(const char *real, int is_named) {
    struct statvfs disk;
    if (statvfs(real, &disk)) return no("%s", strerror(errno)), 0;
    unsigned long long room = (unsigned long long)disk.f_bavail * disk.f_frsize;
    unsigned long long needed = (unsigned long long)UNPACKED_BYTES * (is_named ? 1 : 2);
    if (room < needed) return no("%llu MB are free, %llu MB are needed", room / 1000000, megabytes(needed)), 0;
    if (disk.f_files && disk.f_favail < UNPACKED_FILES)
        return no("%llu new files are possible, %d are needed", (unsigned long long)disk.f_favail, UNPACKED_FILES), 0;
    return 1;
}

/* Descriptor of the unpacked folder below a place, and its path in `path`; -1 and `why` where it cannot be had there.
 * A place that the user named has to hold it; another one must keep as much free as it gives: it may be the full disk. */
static int have_in(const char *place, int is_named, char *path) {
    char base_path[PATH_MAX], real[PATH_MAX];
    struct statvfs disk;
    struct stat found;
    if (!realpath(place, real) || statvfs(real, &disk)) return no("%s", strerror(errno));
    if (disk.f_flag & ST_NOEXEC) return no("it is mounted noexec");
    if (!is_private(real)) return -1;
    int length = snprintf(base_path, sizeof base_path, "%s/krepair-%ld", real, (long)geteuid());
    if (length >= PATH_MAX - 100) return no("its path is too long");
    snprintf(path, PATH_MAX, "%s/" NAME, base_path);
    if (lstat(base_path, &found) && !has_room(real, is_named)) return -1;
    if (mkdir(base_path, 0700) && errno != EEXIST) return no("%s", strerror(errno));
    int base = open(base_path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (base < 0 || fstat(base, &found) || found.st_uid != geteuid() || found.st_mode & (S_IWGRP | S_IWOTH)) {
        if (base >= 0) close(base);
        return no("it is not private: krepair-%ld in it is not a folder that only this user can write", (long)geteuid());
    }
    int folder = open_whole(base);
    if (folder >= 0) return folder;
    int lock = openat(base, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (lock < 0 || flock(lock, LOCK_EX)) return no("%s", strerror(errno));
    folder = open_whole(base); /* another start may have unpacked it meanwhile */
    if (folder >= 0) return folder;
    sweep(base);
    return has_room(real, is_named) ? unpack(base, base_path) : -1;
}

static int have_anywhere(char *path) {
    char home[PATH_MAX] = "", reasons[16 * PATH_MAX] = "";
    const char *named = getenv(VARIABLE), *cache = getenv("XDG_CACHE_HOME"), *user = getenv("HOME"), *temporary = getenv("TMPDIR");
    if (named && *named) {
        if (*named != '/') end(REFUSED, VARIABLE "=%s is not an absolute path", named);
        int folder = have_in(named, 1, path);
        if (folder < 0)
            end(REFUSED, "%s cannot hold krepair's programs (%llu MB): %s; name another folder: " VARIABLE "=DIR", named, megabytes(UNPACKED_BYTES), why);
        return folder;
    }
    if (cache && *cache == '/') snprintf(home, sizeof home, "%s", cache);
    else if (user && *user == '/' && user[1]) snprintf(home, sizeof home, "%s/.cache", user);
    struct stat found;
    char *slash = strrchr(home, '/');
    if (slash && slash != home) { /* only in a home of this user: nothing is made in /nonexistent */
        *slash = 0;
        int own = !stat(home, &found) && found.st_uid == geteuid();
        *slash = '/';
        if (own) mkdir(home, 0700);
    }
    const char *places[] = {home, temporary && *temporary == '/' ? temporary : "", "/var/tmp", "/tmp", "/dev/shm"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        int tried = !*places[i] || (i == 1 && (!strcmp(temporary, "/tmp") || !strcmp(temporary, "/var/tmp")));
        if (tried) continue;
        int folder = have_in(places[i], 0, path);
        if (folder >= 0) return folder;
        if (access(places[i], F_OK)) continue;
        size_t used = strlen(reasons);
        snprintf(reasons + used, sizeof reasons - used, "%s%s: %s", used ? "; " : "", places[i], why);
    }
    end(REFUSED, "its programs (%llu MB, %d files) need a folder that keeps as much free; name one: " VARIABLE "=DIR (%s)",
        megabytes(UNPACKED_BYTES), UNPACKED_FILES, *reasons ? reasons : "there is no home and no temporary folder");
}

static void map_own_file(void) {
    struct stat found;
    int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (file < 0) file = open((const char *)getauxval(AT_EXECFN), O_RDONLY | O_CLOEXEC); /* where /proc is missing */
    if (file < 0 || fstat(file, &found)) end(UNREADABLE, "this file cannot be read: %s", strerror(errno));
    if ((size_t)found.st_size != WHOLE_BYTES)
        end(UNREADABLE, "this file is not whole: it has %lld of %zu bytes; copy it again", (long long)found.st_size, WHOLE_BYTES);
    unsigned char *whole = mmap(NULL, WHOLE_BYTES, PROT_READ, MAP_PRIVATE, file, 0);
    if (whole == MAP_FAILED) end(UNREADABLE, "this file cannot be read: %s", strerror(errno));
    payload = whole + LAUNCHER_BYTES;
    close(file);
}

int main(int count, char **typed) {
    char path[PATH_MAX], loader[PATH_MAX + 64], libraries[PATH_MAX + 64], python[PATH_MAX + 64], script[PATH_MAX + 64];
    mode_t mask = umask(077);
    map_own_file();
    int folder = have_anywhere(path);
    close(folder);
    umask(mask);
    snprintf(libraries, sizeof libraries, "%s/lib", path);
    snprintf(loader, sizeof loader, "%s/lib/" LOADER, path);
    snprintf(python, sizeof python, "%s/bin/python3", path);
    snprintf(script, sizeof script, "%s/start.py", path);
    char *before[] = {loader, "--inhibit-cache", "--library-path", libraries, python, "-I", "-S", "-B", script};
    size_t fixed = sizeof before / sizeof *before;
    char **words = calloc(fixed + (size_t)count + 2, sizeof *words);
    if (!words) end(REFUSED, "no memory");
    memcpy(words, before, sizeof before);
    if (count) memcpy(words + fixed, typed, (size_t)count * sizeof *words);
    else words[fixed] = "krepair";
    /* Libraries of the host are for the host's libc. */
    const char *unwanted[] = {"LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "LOCPATH", "GCONV_PATH"};
    for (size_t i = 0; i < sizeof unwanted / sizeof *unwanted; i++) unsetenv(unwanted[i]);
    setenv("OPENSSL_CONF", "/dev/null", 1);
    execv(loader, words);
    end(REFUSED, "%s cannot be started: %s; a security policy may forbid programs there: name another folder: " VARIABLE "=DIR", loader, strerror(errno));
}
